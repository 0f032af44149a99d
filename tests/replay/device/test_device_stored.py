"""Device buffers driven from the host: nothing is copied, and nothing lost on an error."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.device_buffers import CARTPOLE, cartpole, sample

from loopless.replay.device import EpisodicBuffer, PrioritizedBuffer, RingBuffer, Stored

pytestmark = pytest.mark.slow  # XLA compiles a program for nearly every test

KEY = jax.random.key(0)


def rows(first, count=8):
    return jax.tree.map(np.asarray, cartpole(jnp.arange(first, first + count)))


def places(state):
    return [array.unsafe_buffer_pointer() for array in jax.tree.leaves(state) if array.size > 1]


@pytest.mark.parametrize("kind", [RingBuffer, PrioritizedBuffer])
def test_adding_and_updating_write_into_the_same_memory(kind):
    memory = Stored(kind(1000, CARTPOLE))
    before = places(memory.state)
    for first in range(0, 80, 8):
        memory.add(rows(first))
    if kind is PrioritizedBuffer:
        memory.update_priorities(np.arange(5), np.arange(5.0))
    assert places(memory.state) == before
    assert int(memory.state.size) == 80


def test_adding_an_episode_writes_into_the_same_memory():
    memory = Stored(EpisodicBuffer(1000, {"obs": ((2,), np.float32)}))
    before = places(memory.state)
    for _ in range(3):
        memory.add({"obs": np.ones((9, 2), np.float32)}, terminals=np.zeros(9), length=7)
    assert places(memory.state) == before
    assert int(memory.state.rows) == 3
    assert memory.sample(KEY, 4, discount=0.9)["obs"].shape == (4, 2)


def test_an_add_that_is_not_donated_takes_other_memory():
    buffer = RingBuffer(1000, CARTPOLE)
    state = buffer.init()
    assert places(jax.jit(buffer.add)(state, rows(0))) != places(state)


def test_after_an_error_the_state_is_whole():
    memory = Stored(RingBuffer(100, CARTPOLE))
    memory.add(rows(0))
    with pytest.raises(ValueError, match="reward is missing"):
        memory.add({name: array for name, array in rows(8).items() if name != "reward"})
    assert int(memory.state.size) == 8
    memory.add(rows(8))
    assert int(memory.state.size) == 16


@pytest.mark.parametrize("kind", [RingBuffer, PrioritizedBuffer])
def test_an_underfilled_buffer_is_not_drawn_from(kind):
    memory = Stored(kind(100, CARTPOLE))
    memory.add(rows(0))
    with pytest.raises(RuntimeError, match=r"too little for batch_size=9\."):
        memory.sample(KEY, 9)
    assert memory.sample(KEY, 8, 3)["obs"].shape == (3, 8, 4)


def test_an_empty_episodic_buffer_is_not_drawn_from():
    memory = Stored(EpisodicBuffer(100, {"obs": ((), np.int32)}))
    with pytest.raises(RuntimeError, match="too little"):
        memory.sample(KEY, 4, discount=0.5)


def test_draws_are_those_of_the_buffer():
    memory = Stored(PrioritizedBuffer(100, CARTPOLE))
    memory.add(rows(0))
    memory.update_priorities(np.arange(8), np.arange(1.0, 9))
    wanted = sample(memory.buffer, memory.state, KEY, (4,), (("beta", 0.7),))
    drawn = memory.sample(KEY, 4, beta=0.7)
    assert drawn["indices"].tolist() == wanted["indices"].tolist()
    np.testing.assert_allclose(drawn["weights"], wanted["weights"], rtol=1e-6)


def test_another_beta_compiles_nothing():
    from loopless.replay.device import ring

    memory = Stored(PrioritizedBuffer(64, CARTPOLE))
    memory.add(rows(0))
    memory.sample(KEY, 4, beta=0.1)
    compiled = ring._draw._cache_size()
    memory.sample(KEY, 4, beta=0.2)
    assert ring._draw._cache_size() == compiled


def test_a_given_state_is_gone_on_with():
    buffer = RingBuffer(100, CARTPOLE)
    memory = Stored(buffer, buffer.add(buffer.init(), rows(0)))
    memory.add(rows(8))
    assert int(memory.state.size) == 16
    assert "Stored(RingBuffer(100 transitions" in repr(memory)


def test_only_the_device_buffers_import_jax():
    code = """
import sys
import loopless.replay
assert "jax" not in sys.modules
from loopless.replay import device
assert "jax" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
