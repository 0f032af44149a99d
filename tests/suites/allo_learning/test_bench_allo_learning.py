"""The tasks of the suite `allo_learning` and their presets fit together; rows are judged."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loopless.bench.result import Result, load, save
from loopless.bench.suites import Options
from loopless.envs.grids.world import make_grid
from loopless.runs.config import resolve
from loopless.runs.pictures import snapshots
from loopless.train.allo.config import ALLO
from pages import measured_on, suite_page
from suites.allo_learning import suite
from suites.allo_learning.tasks import GGDO, QUICK, SHIPPED, Task, allo_job, tasks
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import PRESETS, ROOT

MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}
JOB = allo_job("rooms", seeds=2)
VALUES = {"eigenvalue": [[0.001, 0.1, 0.204]], "true_eigenvalue": [0.0, 0.1, 0.2]}


def config_of(job, monkeypatch):
    monkeypatch.chdir(ROOT)
    return resolve(ALLO, job.words[2:], "loopless train allo")


def outcome(*final, **details):
    final = list(final)
    return Outcome("c", "", 9.0, final, final, [1, 2], [[0.0, x] for x in final], "abc", details)


def judged(task, *final, **details):
    row = suite.row_of(task, {task.job: outcome(*final, **details)})
    return [target.met for target in row.targets]


@pytest.mark.parametrize("task", [*SHIPPED, *QUICK], ids=lambda task: f"{task.label}, {task.agent}")
def test_a_preset_is_a_config_that_does_what_its_row_says(task, monkeypatch):
    config = config_of(task.job, monkeypatch)
    assert config.problems() == []
    assert config.seeds == task.job.seeds
    assert (config.objective == "ggdo") == (task.agent == GGDO)
    assert config.grid in task.label
    assert config.components == 11
    for word, value in (("20k steps", 20_000), ("40k steps", 40_000), ("2k steps", 2_000)):
        if word in task.label:
            assert config.steps == value
    assert config.doors == (5 if "doors" in task.label else 0)
    assert config.inputs == ("pixels" if "pixels" in task.label else "xy")
    assert make_grid(config.grid).states >= (150 if "Maze" in config.grid else 11)


def test_the_issue_s_six_results_are_all_there():
    assert {task.number for task in SHIPPED} == {1, 2, 3, 4, 5, 6}
    asked = {(task.number, task.each or task.mean or task.most) for task in SHIPPED}
    assert {(1, 0.995), (1, 0.45), (2, 0.99), (2, 0.98), (4, 0.98), (5, 0.98), (6, 0.98)} <= asked


def test_permutation_is_at_half_of_the_steps_and_barriers_span_two_decades(monkeypatch):
    found = [config_of(task.job, monkeypatch) for task in SHIPPED if task.number == 4]
    assert (found[0].permute_at, found[0].steps) == (20_000, 40_000)
    assert (found[1].barrier, found[1].barrier_rate) == ((0.1, 1.0, 10.0), 0.01)


def test_every_preset_is_used():
    files = {path.stem for path in (ROOT / PRESETS / "allo").glob("*.toml")}
    assert files == {task.job.path.stem for task in SHIPPED}


def test_names_of_runs_are_their_own_and_commands_are_what_a_user_types():
    jobs = {task.job for task in tasks(Path("there"))}
    assert len({job.name for job in jobs}) == len(jobs)
    assert JOB.command == (
        "loopless train allo --config src/loopless/train/presets/allo/rooms.toml --seeds 2"
    )


def test_the_papers_layouts_are_run_from_a_folder_that_the_result_does_not_name():
    assert len(tasks(None)) + 4 == len(tasks(Path("/some/where")))
    paper = [task for task in tasks(Path("/some/where")) if "paper" in task.label]
    names = [task.job.name for task in paper]
    assert [name[10:20] for name in names] == ["GridMaze-7"] * 2 + ["GridMaze-9"] * 2
    for task in paper:
        assert "/some/where/" in task.job.words[task.job.words.index("--grid") + 1]
        assert "/some/where" not in task.job.command


@pytest.mark.parametrize(
    ("asked", "final", "kept"),
    [
        ({"each": 0.98}, (0.98, 0.99), True), ({"each": 0.98}, (0.979, 0.999), False),
        ({"mean": 0.98}, (0.97, 0.99), True), ({"mean": 0.98}, (0.97, 0.98), False),
        ({"most": 0.45}, (0.4, 0.5), True), ({"most": 0.45}, (0.4, 0.51), False),
        ({"spread": 0.01}, (0.98, 0.989), True), ({"spread": 0.01}, (0.98, 0.991), False),
    ],
)  # fmt: skip
def test_similarities_are_judged(asked, final, kept):
    assert judged(Task(1, "a", "b", JOB, **asked), *final) == [kept]


@pytest.mark.parametrize(
    ("asked", "kept"),
    [({"percent": 2.1}, True), ({"percent": 1.9}, False), ({"first": 0.0011}, True),
     ({"first": 0.0009}, False)],
)  # fmt: skip
def test_eigenvalues_are_judged(asked, kept):
    assert judged(Task(3, "a", "b", JOB, **asked), 0.99, **VALUES) == [kept]


def test_a_run_that_failed_or_has_not_ended_is_no_score():
    task = Task(1, "a", "b", JOB, mean=0.9)
    assert suite.row_of(task, {}) is None
    failed = suite.row_of(task, {JOB: RunFailed("rooms: exit code 1: no memory")})
    assert (failed.status, failed.reason) == ("failed", "rooms: exit code 1: no memory")
    assert Result("allo_learning", {}, measurements=[failed]).ours_is_wrong


def test_the_log_and_the_last_snapshot_say_how_a_run_ended(tmp_path):
    rows = [
        {"step": step, "time": 0.0, "kind": "train", "similarity": [[x, x], [1.0, 0.5]],
         "eigenvalue": [[0.0, 0.1], [0.0, 0.2]], "barrier": [2.0, 2.5]}
        for step, x in ((10, 0.5), (20, 0.75))
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    truth = {"step": np.int64(20), "kernel_eigenvalues": np.array([0.0, 0.5, 9.0])}
    snapshots.save(tmp_path, truth)
    found = suite.evaluate(tmp_path)
    assert found["final"] == [0.75, 0.75]
    assert found["curve_steps"] == [10, 20]
    assert found["curve_returns"] == [[0.5, 0.75], [0.75, 0.75]]
    assert found["details"]["true_eigenvalue"] == [0.0, 0.5]
    assert found["details"]["eigenvalue"] == [[0.0, 0.1], [0.0, 0.2]]


class Seen(Runs):
    """Runs that end at once."""

    made: list = []  # noqa: RUF012

    def outcomes(self, jobs):
        Seen.made.append(self._evaluation)
        return ((job, outcome(*[0.99] * job.seeds, **VALUES)) for job in jobs)


@pytest.fixture
def result(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "Runs", Seen)
    monkeypatch.chdir(tmp_path)
    made, said = Result("allo_learning", {"threads": 1}), []
    suite.run(Options(json=tmp_path / "result.json"), made, said.append)
    assert "--grids DIR" in said[0]
    return replace(made, machine=MACHINE)


def test_every_run_is_made_once_and_every_task_has_a_row(result, tmp_path):
    assert len(result.measurements) == len(SHIPPED)
    assert Seen.made[-1] is suite.evaluate
    assert load(tmp_path / "result.json").measurements == result.measurements
    save(result, tmp_path / "again.json")
    assert load(tmp_path / "again.json") == result


def test_the_readme_has_a_line_a_row_and_every_target(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    lines = suite_page(result)
    text = "\n".join(lines)
    assert all(row.note in text for row in result.measurements)
    assert all(target.target in text for row in result.measurements for target in row.targets)
    assert lines[-1] == measured_on(result)
    failed = [replace(row, value=None, status="failed") for row in result.measurements[:1]]
    assert "failed" in suite_page(replace(result, measurements=failed))[2]
