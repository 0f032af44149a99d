"""The suite `learning` with runs that are not made, from end to end."""

from dataclasses import replace

import pytest

from loopless.bench.result import Result, load
from loopless.bench.suites import Options
from pages import measured_on, suite_page
from suites.dqn_learning import suite
from suites.dqn_learning.runs import Outcome, RunFailed, Runs
from suites.dqn_learning.tasks import QUICK, TASKS

MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}


class MadeUp:
    """Runs that all end with the same outcome; `seen` is after which of them JSON was there."""

    def __init__(self, path=None, failing=()):
        self.path, self.failing, self.seen = path, failing, []

    def outcomes(self, jobs):
        for number, job in enumerate(jobs):
            agents = job.seeds
            outcome = Outcome(
                job.command, "settings", 9.0, [490.0] * agents, [500.0] * agents,
                [25_000, 500_000], [[100.0, 490.0]] * agents,
            )  # fmt: skip
            yield job, RunFailed("it failed") if number in self.failing else outcome
            if self.path:
                self.seen.append(len(load(self.path).measurements))


def trained(runs, tasks=TASKS, json=None):
    made, said = Result("dqn_learning", {"threads": 1}, MACHINE), []
    suite.train(runs, tasks, Options(json=json), made, said.append)
    return made, said


def test_every_task_gets_a_row():
    made, said = trained(MadeUp())
    assert {row.section for row in made.measurements} == set(suite.TITLES)
    assert len(made.measurements) == len(TASKS)
    runs = 5 * len(TASKS)
    assert len(said) == 1 + runs
    assert said[-1].startswith(f"{runs}/{runs} ")
    assert said[1].endswith(TASKS[0].jobs[0].command)
    assert said[0] == f"dqn_learning: {runs} run(s), 1 at once"


def test_json_is_written_after_each_run(tmp_path):
    runs = MadeUp(tmp_path / "learning.json")
    made, _ = trained(runs, TASKS[:2], runs.path)
    assert runs.seen == [1] * 5 + [2] * 5
    assert load(runs.path) == made


def test_a_failed_run_makes_the_suite_wrong_and_the_rest_goes_on():
    made, said = trained(MadeUp(failing=[0]), TASKS[:2])
    assert [row.status for row in made.measurements] == ["failed", "ok"]
    assert made.ours_is_wrong
    assert said[1] == "1/10 it failed"


def test_a_quick_run_is_one_short_run(monkeypatch, tmp_path):
    seen = []

    class Seen(Runs):
        def outcomes(self, jobs):
            jobs = list(jobs)
            seen.extend([(self.folder, self._threads), *jobs])
            return MadeUp().outcomes(jobs)

    monkeypatch.setattr(suite, "Runs", Seen)
    monkeypatch.chdir(tmp_path)
    made = Result("dqn_learning", {})
    suite.run(Options(quick=True), made, lambda _: None)
    (folder, threads), *jobs = seen
    assert (folder.parent, threads, jobs) == (
        tmp_path / "bench-results/dqn_learning",
        1,
        QUICK.jobs,
    )
    assert len(made.measurements) == 1


def test_the_readme_has_a_line_a_task_its_command_and_every_target():
    made, _ = trained(MadeUp())
    lines = suite_page(made)
    text = "\n".join(lines)
    assert all(f"`{task.jobs[0].command}`" in text for task in TASKS)
    assert "| 490.0 | 490.0 … 490.0 | 9 |" in text
    targets = [target for row in made.measurements for target in row.targets]
    assert all(target.target in text for target in targets)
    assert lines[-1] == measured_on(made)


@pytest.mark.parametrize("status", ["failed", "unavailable"])
def test_the_readme_says_what_did_not_run(status):
    made, _ = trained(MadeUp(), TASKS[:1])
    made.measurements = [replace(made.measurements[0], status=status, value=None, targets=())]
    assert f"| – | {status} | – |" in "\n".join(suite_page(made))
