"""Samplers are judged by their laws: right ones pass in every library, wrong ones are told why."""

import jax
import numpy as np
import pytest
import torch

from loopless.reference.episodic import search_sample
from loopless.verify import Options, UsageError
from loopless.verify.judge import judge
from loopless.verify.samplers.laws import Priorities, Ring, Stream

QUICK = Options(timing=False)


def uniform(size, batch_size, rng):
    return rng.integers(0, size, batch_size)


def uniform_without_a_generator(buffer_size, n_samples):
    return np.random.randint(0, buffer_size, n_samples)  # noqa: NPY002


def uniform_in_torch(size, batch_size, generator):
    return torch.randint(0, size, (batch_size,), generator=generator)


def by_multinomial(priorities, batch_size, alpha, beta):
    p = torch.where(priorities > 0, priorities**alpha, 0.0)
    indices = torch.multinomial(p, batch_size, replacement=True)
    weights = (len(p) * p[indices] / p.sum()) ** -beta
    return indices, weights / weights.max()


def by_choice_in_jax(key, priorities, batch_size, alpha):
    p = jax.numpy.where(priorities > 0, priorities**alpha, 0.0)
    return jax.random.choice(key, len(p), (batch_size,), p=p / p.sum())


def stratified(priorities, batch_size, rng):
    total = np.cumsum(priorities)
    targets = (np.arange(batch_size) + rng.random(batch_size)) / batch_size * total[-1]
    return np.searchsorted(total, targets, side="right")


def pairs_of_the_reference(ends, batch_size, gamma, rng):
    import random

    edges = np.flatnonzero(ends) + 1
    rows = np.split(np.asarray(ends), edges[:-1])
    samples = search_sample(
        rows, "single", gamma, batch_size, random.Random(int(rng.integers(2**31)))
    )
    begins = np.concatenate([[0], edges])
    starts = np.array([begins[row] + start for row, start, _ in samples])
    return starts, np.array([gap for _, _, gap in samples])


def pairs_by_remainders(lengths, batch_size, discount, rng):
    """[n, 2]: starts evenly over all that have a successor, gaps by the memoryless trick."""
    horizons = np.concatenate([np.arange(n - 1, -1, -1) for n in lengths])
    start = rng.choice(np.flatnonzero(horizons), batch_size)
    gap = np.floor(np.log(1 - rng.random(batch_size)) / np.log(discount)).astype(int)
    return np.stack([start, start + 1 + gap % horizons[start]], axis=1)


@pytest.mark.parametrize(
    ("function", "claim"),
    [
        (uniform, "uniform_sampler"),
        (uniform_without_a_generator, "uniform_sampler"),
        (uniform_in_torch, "uniform_sampler"),
        (by_multinomial, "prioritized_sampler"),
        (stratified, "prioritized_sampler"),
        (pairs_by_remainders, "geometric_sampler"),
    ],
)
def test_a_right_sampler_is_equal(function, claim):
    report = judge(function, claim, QUICK)
    assert report.equal, report
    assert not report.diagnosis


def test_the_loop_twin_of_pairs_is_equal(monkeypatch):
    monkeypatch.setattr("loopless.verify.samplers.judge.DRAWS", 4_000)  # it searches anew for each
    assert judge(pairs_of_the_reference, "geometric_sampler", QUICK).equal


@pytest.mark.slow
def test_a_right_sampler_in_jax_is_equal(monkeypatch):
    monkeypatch.setattr("loopless.verify.samplers.judge.DRAWS", 2_560)
    report = judge(by_choice_in_jax, "prioritized_sampler", QUICK)
    assert report.equal
    assert report.how.startswith("JAX")


def test_what_cannot_be_meant_is_bad_usage():
    def odd(size, whatever):
        return np.zeros(whatever)

    with pytest.raises(UsageError, match="cannot tell what 'whatever'"):
        judge(odd, "uniform_sampler", QUICK)
    mapped = Options(timing=False, maps={"whatever": "batch_size"})
    assert judge(odd, "uniform_sampler", mapped).diagnosis


def test_a_sampler_that_raises_is_bad_usage():
    def broken(size, batch_size):
        raise RuntimeError("empty")

    with pytest.raises(UsageError, match="RuntimeError: empty"):
        judge(broken, "uniform_sampler", QUICK)


@pytest.mark.parametrize(
    ("world", "good", "bad", "what"),
    [
        (Ring(4), [0, 1, 2, 3], [0, 1, 2, 2], "every slot alike"),
        (Ring(4), [0, 1, 2, 3], [0, 1, 2, 4], "filled slots only"),
    ],
)
def test_laws_can_fail(world, good, bad, what):
    def broken(draws):
        outputs = [np.tile(draws, 1000)]
        return [problem.name for problem in world.problems(outputs, 4) if problem.words]

    assert broken(good) == []
    assert what in broken(bad)


def test_the_share_of_crossing_pairs_is_counted():
    world = Stream((3, 3), 0.5)
    first, second = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 4])
    problems = {x.name: x for x in world.problems([first, second], 4)}
    assert problems["inside of one episode"].words == "25.0% of pairs cross the end of an episode"


def test_weights_of_the_batch_or_of_all_are_both_right():
    world = Priorities(1.0, 0.5)
    law = world.probabilities(1.0)
    drawn = np.random.default_rng(0).choice(len(law), 6400, p=law)
    raw = (len(law) * law[drawn]) ** -0.5
    by_batch = (raw.reshape(-1, 64) / raw.reshape(-1, 64).max(1, keepdims=True)).ravel()
    of_all = raw / (len(law) * law[law > 0].min()) ** -0.5
    for weights in (by_batch, of_all):
        assert not [x for x in world.problems([drawn, weights], 64) if x.words]
    wrong = [x for x in world.problems([drawn, raw], 64) if x.words]
    assert [x.diagnosis for x in wrong] == ["Does not divide the weights by the largest."]
