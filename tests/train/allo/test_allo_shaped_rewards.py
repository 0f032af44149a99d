"""The example of shaped rewards: start and goal are far apart, shaping changes no policy."""

import example_modules
import gymnasium
import numpy as np
import pytest

from loopless.envs.grids.world import make_grid


@pytest.fixture(scope="module")
def shaping():
    return example_modules.load("allo_shaped_rewards")


def test_start_and_goal_are_as_far_apart_as_cells_can_be(shaping):
    drawn = shaping.drawing("GridCorridor-12")
    world = make_grid(drawn)
    start, goal = int(world.starts.argmax()), int(world.goals.argmax())
    ways = [shaping.distances(world, state) for state in range(world.states)]
    assert ways[start][goal] == np.max(ways) == 6 + 3
    np.testing.assert_array_equal(ways, np.transpose(ways))


def test_shaping_adds_up_to_the_potential_of_the_start(shaping):
    layout = shaping.drawing("GridCorridor-12")
    potential = -np.random.default_rng(0).random(12)
    fields = {"layout": layout, "obs": "one-hot", "max_steps": 500}
    plain, shaped = shaping.GridEnv(**fields), shaping.Shaped(potential, **fields)
    plain.reset(seed=0)
    shaped.reset(seed=0)
    start, total, discount = shaped._position, 0.0, 1.0
    rng, done = np.random.default_rng(1), False
    while not done:
        action = rng.integers(4)
        _, reward, arrived, late, _ = plain.step(action)
        _, paid, *_ = shaped.step(action)
        total += discount * (paid - reward)
        discount *= shaping.GAMMA
        done = arrived or late
    assert arrived
    assert total == pytest.approx(-potential[start])


@pytest.mark.slow
def test_both_agents_learn_one_task_and_are_drawn(shaping, tmp_path, monkeypatch):
    told = []

    def learned(config):
        told.append((config.env, config.seed))
        gymnasium.make(config.env).reset(seed=0)
        return np.array([[100, 0.0], [200, float(config.env == shaping.SHAPED)]])

    monkeypatch.setattr(shaping, "learned", learned)
    monkeypatch.setattr(shaping, "represented", lambda *_: np.eye(12))
    out = tmp_path / "picture.png"
    found = shaping.main(["--grid", "GridCorridor-12", "--seeds", "2", "--out", str(out)])
    assert told == [(env, seed) for env in (shaping.PLAIN, shaping.SHAPED) for seed in range(2)]
    assert [curves.shape for curves in found.values()] == [(2, 2, 2)] * 2
    assert out.stat().st_size > 10_000
