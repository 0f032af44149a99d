"""Numbers that change during a run, and the chunks of a run."""

import jax.numpy as jnp
import numpy as np
import pytest

from loopless.train.engine.schedules import Chunks, line, progress, warmup_cosine


def test_no_end_is_a_constant_and_an_end_is_reached_in_a_line():
    assert line(0.3, None, 0.7) == 0.3
    shares = progress(np.array([-5, 0, 25, 100, 130]), 100, np)
    np.testing.assert_allclose(line(0.4, 0.0, shares), [0.4, 0.4, 0.3, 0.0, 0.0])


@pytest.mark.parametrize(("end", "last"), [(0.0, 0.0), (0.1, 0.1), (None, 1.0)])
@pytest.mark.parametrize("xp", [np, jnp])
def test_a_cosine_rises_for_the_warmup_and_falls_to_the_end(xp, end, last):
    rate = [float(warmup_cosine(1.0, end, i, warmup=4, total=104, xp=xp)) for i in range(105)]
    np.testing.assert_allclose(rate[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)
    np.testing.assert_allclose(rate[54], (1 + last) / 2, rtol=1e-6)
    np.testing.assert_allclose(rate[104], last, atol=1e-6)


@pytest.mark.parametrize(
    ("chunks", "sizes"),
    [
        (Chunks(10, 4), [4, 4, 2]),
        (Chunks(10, 4, collecting=5), [4, 1, 4, 1]),
        (Chunks(3, 4, collecting=3), [3]),
        (Chunks(4, 9), [4]),
    ],
)
def test_no_chunk_both_collects_and_learns(chunks, sizes):
    event, seen = 0, []
    while event < chunks.events:
        size = chunks.after(event)
        learning = {chunks.is_learning(number) for number in range(event, event + size)}
        assert learning == {event >= chunks.collecting}
        seen.append(size)
        event += size
    assert seen == sizes
