"""The tasks of the suite `ppo_learning` and their presets fit together; rows are judged."""

from dataclasses import replace

import pytest

from loopless.bench.result import Result
from loopless.bench.suites import Options
from loopless.envs.compiled import compiled_ids
from loopless.runs.config import resolve
from loopless.train.ppo.config import PPO
from suites.dqn_learning import suite as learning
from suites.dqn_learning import tasks
from suites.dqn_learning.runs import Outcome, Runs
from suites.dqn_learning.tasks import PRESETS, ROOT
from suites.ppo_learning import suite
from suites.ppo_learning.suite import CHANCE, FORGETFUL, QUICK, TASKS

CARTPOLE, *_, CHEETAH = TASKS
NO_MEMORY = next(task for task in TASKS if task.agent == FORGETFUL)


@pytest.fixture
def installed(monkeypatch):
    """As if every environment could be made."""
    monkeypatch.setattr(tasks, "find_spec", lambda name: name)


def config_of(job, monkeypatch):
    monkeypatch.chdir(ROOT)
    return resolve(PPO, job.words[2:], "loopless train ppo")


def row(task, *scores):
    job = task.jobs[0]
    curves = [[0.0, float(score)] for score in scores]
    done = Outcome(job.command, "", 9.0, list(scores), list(scores), [1, task.steps], curves)
    return learning.row_of(task, {job: done})


def met(found):
    return [target.met for target in found.targets]


@pytest.mark.parametrize("task", [*TASKS, QUICK], ids=lambda task: f"{task.label}, {task.agent}")
def test_a_preset_is_a_config_for_its_environment_and_steps(task, monkeypatch, installed):
    config = config_of(task.jobs[0], monkeypatch)
    assert (config.env, config.steps, config.problems()) == (task.env, task.steps, [])
    compiled = task.env in compiled_ids()
    assert config.mode == ("compiled" if compiled else "hosted")
    assert len(task.jobs) * config.seeds == task.seeds


def test_the_agents_of_the_memory_task_differ_by_their_core(monkeypatch):
    with_, without = (config_of(t.jobs[0], monkeypatch) for t in TASKS if "Memory" in t.env)
    assert (with_.core, without.core) == ("gru", "none")
    assert replace(without, core="gru") == with_


def test_every_preset_is_used():
    files = {path.stem for path in (ROOT / PRESETS / "ppo").glob("*.toml")}
    files -= {"carracing"}  # takes hours; tests/suites/pictures checks its settings
    assert files == {task.preset for task in TASKS}


def test_the_command_is_what_a_user_types():
    expected = (
        "loopless train ppo --config src/loopless/train/presets/ppo/cartpole.toml --mode compiled"
    )
    assert CARTPOLE.jobs[0].command == f"{expected} --seed 0 --seeds 5"


@pytest.mark.parametrize(("last", "all_"), [(475, True), (474, False)])
def test_all_seeds_have_to_solve_cartpole(last, all_):
    assert met(row(CARTPOLE, 500, 500, 500, 500, last)) == [all_, None]


@pytest.mark.parametrize(("score", "honest"), [(0.55, True), (0.7, False)])
def test_who_cannot_remember_may_not_do_better_than_chance(score, honest):
    assert 0.5 < CHANCE < 0.7
    assert met(row(NO_MEMORY, *[score] * 5)) == [honest]


def test_what_is_only_stated_is_not_judged(installed):
    found = row(replace(CHEETAH, env="CartPole-v1"), *[1500.0] * 5)
    assert met(found) == [None]
    assert "6241 is published" in found.targets[0].target
    found = row(replace(TASKS[3], env="CartPole-v1"), *[90.0] * 5)
    assert (met(found), found.targets[0].measured) == ([None], 90)


def test_what_is_not_installed_is_unavailable_and_is_no_error(monkeypatch):
    monkeypatch.setattr(tasks, "find_spec", lambda name: None)
    found = learning.row_of(CHEETAH, {})
    assert (CHEETAH.jobs, found.status) == ([], "unavailable")
    assert found.reason == "No module named 'mujoco'"
    assert not Result("ppo_learning", {}, measurements=[found]).ours_is_wrong


def test_the_suite_runs_the_tasks_of_ppo_in_a_folder_of_its_own(monkeypatch, tmp_path):
    seen = []

    class Seen(Runs):
        def outcomes(self, jobs):
            seen.extend([self.folder, *jobs])
            return iter(())

    monkeypatch.setattr(learning, "Runs", Seen)
    monkeypatch.chdir(tmp_path)
    said = []
    suite.run(Options(), Result("ppo_learning", {}), said.append)
    folder, *jobs = seen
    assert folder.parent == tmp_path / "bench-results/ppo_learning"
    assert {job.trainer for job in jobs} == {"ppo"}
    assert set(jobs) == {job for task in TASKS for job in task.jobs}
    assert said == [f"ppo_learning: {len(jobs)} run(s), 1 at once"]


def test_it_is_shown_as_learning_is():
    assert (suite.TITLES, suite.page) == (learning.TITLES, learning.page)
