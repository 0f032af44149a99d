"""The suite `own_code`: contenders agree, wrong ones are found out, promises are judged."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from loopless.bench.contest import Call, Contest, enter
from loopless.bench.result import Measurement, Result
from loopless.bench.timing import Budget
from pages import suite_page
from suites.own_code import plain, suite
from suites.own_code.plain import PPOUpdates, QUpdates

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}
SMALL = (QUpdates((5,), 8, 1), QUpdates((5,), 8, 3), PPOUpdates(16, 4, (6,)))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("contender", [*suite.FORWARDS, *suite.ACTORS], ids=lambda c: c.name)
def test_acting_agrees_with_float64(contender, rows):
    row = enter(contender, "forward", suite.Acting(rows)).row
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize("contender", [suite.FORWARDS[0], suite.ACTORS[0]], ids=lambda c: c.name)
def test_wrong_acting_is_found_out(contender):
    def prepare(case):
        call = contender.prepare(case)
        expected, received = call.read(call.run())
        return Call(call.run, lambda _: (expected, np.asarray(received) + 1e-4))

    row = enter(replace(contender, prepare=prepare), "forward", suite.Acting(3)).row
    assert row.status == "disagrees"


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.label)
@pytest.mark.parametrize("contender", suite.UPDATES, ids=lambda c: c.name)
def test_updates_move_the_parameters_as_float64_does(contender, case):
    row = enter(contender, "update", case).row
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.label)
def test_an_update_without_clipping_is_found_out(case):
    eager = suite.UPDATES[1]
    clipped = replace(case, max_norm=1e-9)  # Adam's epsilon shows at gradients as small as this
    row = enter(replace(eager, prepare=lambda _: eager.prepare(clipped)), "update", case).row
    assert row.status == "disagrees"


def test_every_promise_is_judged(monkeypatch):
    numbers = {"first": 3.0, "dqn_before": 100.0, "dqn_after": 260.0}
    numbers |= {"sac_before": 100.0, "sac_after": 260.0}
    monkeypatch.setattr(suite, "child_number", lambda what, *_, **__: numbers[what])
    made = Result("own_code", {"threads": 1}, MACHINE)
    contest = Contest(made, SHORT, lambda _: None)
    suite.measure_first(contest)
    for program in (suite.PROGRAMS[0], suite.PROGRAMS[3]):
        suite.measure_program(program, contest, quick=False)
    targets = [target for row in made.measurements for target in row.targets]
    assert [target.met for target in targets] == [True, True, None]
    assert [row.samples for row in made.measurements] == [1, 3, 3, 3, 3]
    case = suite.SMALL
    rows = [
        Measurement("update", case.label, name, "", "ours", value=value)
        for name, value in ((suite.FUSE, 1.0), (suite.EAGER, 4.4))
    ]
    assert [target.met for row in suite.judge_update(case, rows) for target in row.targets] == [
        False
    ]
    for ours, theirs, factor in (
        (suite.FORWARD, suite.MODULE, 10.0),
        (suite.ACTOR, suite.CATEGORICAL, 20.0),
    ):
        rows = [
            Measurement(ours, "one observation", name, "", "ours", value=value)
            for name, value in ((ours, 1.0), (theirs, factor))
        ]
        judged = suite.judge_one(ours, theirs, rows)
        assert [target.met for row in judged for target in row.targets] == [True]


def test_a_program_that_fails_says_so():
    row = Measurement("program", "DQN", suite.AFTER, "loopless", "ours", unit="steps/s")
    failed = replace(row, status="failed", reason="exit code 1")
    assert suite.middle_of([replace(row, value=2.0), failed]) == failed
    middle = suite.middle_of([replace(row, value=value) for value in (3.0, 1.0, 2.0)])
    assert (middle.value, middle.samples) == (2.0, 3)


def test_the_page_shows_every_section(monkeypatch):
    made = Result("own_code", {"threads": 1}, MACHINE, titles=suite.TITLES)
    for section in suite.TITLES:
        made.measurements.append(Measurement(section, section, suite.FUSE, "", "ours", value=1.0))
    monkeypatch.setattr("pages.load_suite", lambda name: suite)
    text = "\n".join(suite_page(made))
    assert all(section in text for section in suite.TITLES)


PROGRAM = """
import types

LEARNING_STARTS = 2
env = types.SimpleNamespace(step=lambda: time.sleep(2e-3), reset=lambda: time.sleep(2e-3))
gym = types.SimpleNamespace(make=lambda name: env)

class Agent:
    def act(self): time.sleep(1e-3)
    def update(self, first): time.sleep(0.3 if first else 4e-3)

class Memory:
    def add(self): pass
    def sample(self): pass

def train(steps, seed):
    env, agent, memory = gym.make("x"), Agent(), Memory()
    for step in range(1, steps + 1):
        agent.act(), env.step(), memory.add(), memory.sample()
        if step >= LEARNING_STARTS:
            agent.update(step == LEARNING_STARTS)
        if step == LEARNING_STARTS:
            started = time.perf_counter()
    return (steps - LEARNING_STARTS) / (time.perf_counter() - started), []
"""


def test_the_seconds_of_parts_leave_out_the_first_update_and_add_up(monkeypatch):
    clock = [0.0]
    sleep = SimpleNamespace(
        sleep=lambda seconds: clock.append(clock[-1] + seconds), perf_counter=lambda: clock[-1]
    )
    monkeypatch.setattr(plain, "perf_counter", sleep.perf_counter)
    names = {"time": sleep}
    exec(PROGRAM, names)
    seconds = plain.seconds_of_parts(names["train"], plain.PARTS["dqn"], 12)
    parts = {"acting": 1e-3, "storing": 0.0, "drawing batches": 0.0, plain.UPDATES: 4e-3}
    expected = parts | {plain.ENVIRONMENT: 2e-3, plain.REST: 0.0}
    assert seconds == pytest.approx(expected, abs=1e-9)


def test_what_a_program_could_gain_at_most_is_stated(monkeypatch):
    after = {"acting": 1.0, plain.UPDATES: 2.0, plain.ENVIRONMENT: 3.0, plain.REST: 1.0}
    seconds = {"before": {part: 10 * value for part, value in after.items()}, "after": after}
    monkeypatch.setattr(suite, "child_number", lambda _, name, which, steps: seconds[which])
    made = Result("own_code", {"threads": 1})
    suite.measure_parts(suite.PROGRAMS[0], Contest(made, SHORT, lambda _: None), quick=True)
    (target,) = [target for row in made.measurements for target in row.targets]
    assert target.measured == pytest.approx(70 / 4)
    assert [row.case for row in made.measurements[::4]] == ["dqn before", "dqn after"]
