"""The tasks of the suite `learning` and their presets fit together."""

import pytest

from loopless.runs.config import resolve
from loopless.train.dqn.config import DQN
from suites.dqn_learning.tasks import (
    PRESETS,
    QUICK,
    ROOT,
    SEEDS,
    TASKS,
    agent_job,
)


def config_of(job, monkeypatch):
    monkeypatch.chdir(ROOT)
    return resolve(DQN, job.words[2:], "loopless train dqn")


@pytest.mark.parametrize("task", [*TASKS, QUICK], ids=lambda task: f"{task.label}, {task.agent}")
def test_a_preset_is_a_config_for_its_environment_and_steps(task, monkeypatch):
    config = config_of(task.jobs[0], monkeypatch)
    assert (config.env, config.steps, config.mode) == (task.env, task.steps, "hosted")
    if "prioritized" in task.agent:
        assert (config.prioritized, config.double) == ("exact", True)
    if task.agent == "DQN":
        assert (config.prioritized, config.double, config.target) == ("off", False, "replace")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.label)
def test_seeds_differ_and_nothing_else(task, monkeypatch):
    configs = [config_of(job, monkeypatch) for job in task.jobs]
    assert [config.seed for config in configs] == list(range(SEEDS))
    assert len({job.name for job in task.jobs}) == SEEDS


def test_every_preset_is_used():
    files = {path.stem for path in (ROOT / PRESETS / "dqn").glob("*.toml")}
    files -= {"atari_pong"}  # takes a day; tests/suites/pictures checks its settings
    # What these reach, in seconds to minutes, stands in the files; `loopless presets` lists it.
    files -= {"cliffwalking", "frozenlake", "mountaincar", "taxi"}
    assert files == {task.preset for task in TASKS}


def test_the_command_is_what_a_user_types():
    job = agent_job("cartpole", seed=3, steps=50)
    expected = (
        "loopless train dqn --config src/loopless/train/presets/dqn/cartpole.toml --mode hosted"
    )
    assert job.command == f"{expected} --seed 3 --steps 50"
