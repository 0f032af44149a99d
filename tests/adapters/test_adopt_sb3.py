"""The pairs of `examples/adopt` for Stable-Baselines3: one import differs, the run does not."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from support.sb3 import assert_same_weights

FOLDER = Path(__file__).parents[2] / "examples" / "adopt"


def code(name):
    """Return the lines of an example, without its docstring."""
    return (FOLDER / f"{name}.py").read_text().split('"""', 2)[2].split("\n")


@pytest.mark.parametrize(("name", "kind"), [("sb3_dqn", "DQN"), ("sb3_ppo", "PPO")])
def test_a_pair_differs_in_one_import(name, kind):
    before, after = (
        [line for line in code(f"{name}_{which}") if line] for which in ("before", "after")
    )
    gone, new = f"from stable_baselines3 import {kind}", f"from loopless.adapters.sb3 import {kind}"
    assert [line for line in before if line not in after] == [gone]
    assert [line for line in after if line not in before] == [new]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fuse.*so these run in eager")  # on a busy machine
def test_both_programs_learn_the_same():
    models = []
    for which in ("before", "after"):
        names = runpy.run_path(str(FOLDER / f"sb3_dqn_{which}.py"))
        models.append(names["make_model"](0).learn(1024))
    assert models[1]._compiled.step.updates == models[0]._n_updates == 128
    np.testing.assert_array_equal(*(m.replay_buffer.observations for m in models))
    assert_same_weights(*models, atol=2e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fuse.*so these run in eager")  # on a busy machine
@pytest.mark.parametrize("name", ["sb3_dqn_after", "sb3_ppo_after"])
def test_a_program_says_how_fast_it_was(name):
    speed, returns = runpy.run_path(str(FOLDER / f"{name}.py"))["train"](1400, 0)
    assert speed > 0
    assert np.isfinite(np.mean(returns))
