"""What a chunk is to the machine: one call, no way back to Python, nothing compiled or copied."""

import logging
from dataclasses import replace

import jax
import numpy as np
import pytest
from run_results import TINY, calls_of_programs, trainer_of

from loopless.runs.progress.clock import Clock

pytestmark = pytest.mark.slow

LARGE = replace(TINY, steps=8_000, buffer_size=20_000)
KINDS = {
    "uniform": {},
    "prioritized": {"prioritized": "exact", "updates": 2, "n_step": 3},
    "two seeds": {"seeds": 2},
}


@pytest.fixture(scope="module", params=KINDS)
def trainer(request):
    """A compiled run beyond its first chunk of learning."""
    trainer = trainer_of(replace(LARGE, **KINDS[request.param]))
    for _ in range(3):
        trainer.advance(Clock())
    return trainer


def test_a_chunk_is_one_call(trainer, tmp_path):
    def three_chunks():
        for _ in range(3):
            trainer.advance(Clock())

    assert calls_of_programs(tmp_path, three_chunks) == 3


def test_more_calls_would_be_counted(tmp_path):
    step = jax.jit(lambda x: x + 1)
    x = step(np.float32(0))
    assert calls_of_programs(tmp_path, lambda: step(step(x))) == 2


def test_nothing_is_compiled_after_the_first_chunks_however_long_they_are(trainer, caplog):
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for size in (5, 5, 2):
            trainer.chunks = trainer.chunks._replace(size=size)
            trainer.advance(Clock())
        assert not [record for record in caplog.records if "ompil" in record.message]
        jax.jit(lambda x: x * 3)(np.float32(0))
        assert [record for record in caplog.records if "ompil" in record.message]


def program_of(trainer):
    numbers = np.int32(trainer.event), np.int32(trainer.chunks.after(trainer.event))
    arguments = trainer.state, trainer.settings, trainer.key, *numbers
    return trainer.compiled(True).lower(*arguments).compile()


def test_a_chunk_does_not_call_back_into_python(trainer):
    text = program_of(trainer).as_text()
    assert "while" in text
    for word in ("callback", "infeed", "outfeed", "send(", "recv(", "host_compute"):
        assert word not in text.lower(), word


def test_a_callback_would_be_seen():
    def noisy(x):
        jax.debug.callback(lambda x: None, x)
        return x + 1

    assert "callback" in jax.jit(noisy).lower(np.float32(0)).compile().as_text().lower()


def on_a_device(array):
    """The part of it that the first device holds."""
    return array.addressable_shards[0].data


def test_the_buffer_is_given_up_and_written_in_place(trainer):
    held = sum(on_a_device(leaf).nbytes for leaf in jax.tree.leaves(trainer.state.replay))
    memory = program_of(trainer).memory_analysis()
    assert memory.alias_size_in_bytes >= held
    assert memory.temp_size_in_bytes < held / 4
    before = trainer.state
    large = max(jax.tree.leaves(before.replay), key=lambda leaf: leaf.nbytes)
    place = on_a_device(large).unsafe_buffer_pointer()
    trainer.advance(Clock())
    assert large.is_deleted()
    after = max(jax.tree.leaves(trainer.state.replay), key=lambda leaf: leaf.nbytes)
    assert on_a_device(after).unsafe_buffer_pointer() == place


@pytest.fixture(scope="module")
def hosted():
    trainer = trainer_of(replace(LARGE, mode="hosted", prioritized="exact"))
    for _ in range(3):
        trainer.advance(Clock())
    yield trainer
    trainer.close()


def test_a_hosted_event_is_one_call_and_acting_is_none(hosted, tmp_path):
    """And one more in a chunk, which draws the keys of all its events."""
    events = hosted.chunks.after(hosted.event)
    assert calls_of_programs(tmp_path, lambda: hosted.advance(Clock())) == events + 1


def test_nothing_is_compiled_after_the_first_chunks_of_a_hosted_run(hosted, caplog):
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for size in (5, 5, 2):
            hosted.chunks = hosted.chunks._replace(size=size)
            hosted.advance(Clock())
        assert not [record for record in caplog.records if "ompil" in record.message]


def test_a_hosted_event_writes_the_buffer_in_place(hosted):
    large = max(jax.tree.leaves(hosted.agent.replay), key=lambda leaf: leaf.nbytes)
    place = large.unsafe_buffer_pointer()
    hosted.advance(Clock())
    after = max(jax.tree.leaves(hosted.agent.replay), key=lambda leaf: leaf.nbytes)
    assert after.unsafe_buffer_pointer() == place
