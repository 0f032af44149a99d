"""Agents of one program: what each does alone, on all devices alike, and in its old memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_results import trainer_of

from loopless.runs.progress.clock import Clock
from loopless.train import registry
from loopless.train.engine.agents import advance_agents, map_agents, place

STATES, OWN, SHARED = np.arange(24.0).reshape(6, 4), np.arange(6.0), np.float64(10)


def step(state, own, shared):
    """A state after something, and something of it."""
    state = jax.lax.fori_loop(0, 3, lambda i, x: x * own + shared + i, state)
    return state, {"sum": state.sum()}


def expected(count):
    found = [step(*one, SHARED) for one in zip(STATES[:count], OWN[:count], strict=True)]
    return np.stack([x for x, _ in found]), np.stack([told["sum"] for _, told in found])


@pytest.mark.parametrize("spread", [advance_agents, map_agents])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_each_does_what_it_does_alone(spread, count):
    program = jax.jit(spread(step, (0, 0, None)))
    states, told = program(STATES[:count], OWN[:count], SHARED)
    np.testing.assert_allclose(states, expected(count)[0], rtol=1e-12)
    np.testing.assert_allclose(told["sum"], expected(count)[1], rtol=1e-12)


@pytest.mark.parametrize(("count", "devices"), [(1, 1), (2, 2), (3, 1), (4, 2)])
def test_devices_have_the_same_number_of_agents_each(count, devices):
    states, _ = jax.jit(advance_agents(step, (0, 0, None)))(STATES[:count], OWN[:count], SHARED)
    assert len(states.sharding.device_set) == devices
    assert {shard.data.shape[0] for shard in states.addressable_shards} == {count // devices}


@pytest.mark.parametrize(("axis", "rows"), [(0, 2), (None, 4)])
def test_what_is_placed_is_not_moved_again(axis, rows):
    own = place(jnp.asarray(OWN[:4]), axis, 4)
    assert [shard.data.shape[0] for shard in own.addressable_shards] == [rows, rows]
    states, keys = jnp.asarray(STATES[:4]), jnp.arange(4)
    function = lambda x, _, data: (x + jnp.sum(data), x)  # noqa: E731
    program = jax.jit(advance_agents(function, (0, 0, axis))).lower(states, keys, own).compile()
    _, _, wanted = program.input_shardings[0]
    assert wanted.is_equivalent_to(own.sharding, 1)


def test_a_state_is_given_up_and_at_most_one_is_copied():
    states = jnp.zeros((16, 10_000))
    program = jax.jit(advance_agents(step, (0, None, None)), donate_argnums=0)
    one, here = 80_000, 16 // 2 * 80_000
    memory = program.lower(states, 1.0, 1.0).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= here
    assert memory.temp_size_in_bytes < 3 * one  # it is worked on, too
    copied = jax.jit(map_agents(step, (0, None, None)), donate_argnums=0)
    memory = copied.lower(states, 1.0, 1.0).compile().memory_analysis()
    assert memory.temp_size_in_bytes >= here


def test_an_accelerator_has_them_side_by_side(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    text = str(jax.make_jaxpr(advance_agents(lambda x: (x @ x, 0.0), (0,)))(jnp.ones((3, 4, 4))))
    assert "shard_map" not in text
    assert "scan" not in text
    assert "dot_general" in text


RUNS = {
    "dqn": {
        "env": "loopless/Chain-v0", "hidden": (6,), "envs": 2, "train_every": 8, "steps": 160,
        "learning_starts": 80, "buffer_size": 96, "batch_size": 8, "log_every": 40,
    },
    "ppo": {
        "env": "loopless/Chain-v0", "hidden": (6,), "envs": 2, "horizon": 8, "minibatches": 2,
        "epochs": 2, "steps": 96, "log_every": 32,
    },
    "allo": {
        "grid": "GridRoom-1", "components": 3, "hidden": (8,), "batch_size": 16, "envs": 20,
        "env_steps": 42, "episode_length": 21, "steps": 40, "log_every": 20,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trainer", RUNS)
def test_how_many_cores_there_are_changes_the_last_digits_at_most(trainer, monkeypatch):
    """Four agents, two on each of two devices, against all four on one device."""

    def arrays(devices):
        monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:devices])
        run = trainer_of(registry.config_class(trainer)(**RUNS[trainer], seeds=4))
        while run.step < run.total:
            run.advance(Clock())
        assert len(run.learner.weights.sharding.device_set) == devices
        return {name: np.asarray(x) for name, x in run.arrays().items()}

    one, two = arrays(1), arrays(2)
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-4, atol=1e-5, err_msg=name)
