"""The suite `allo` on a small encoder: all forms learn the same, and every section is measured."""

import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result, load, save
from loopless.bench.timing import Budget
from loopless.runs.config import resolve
from loopless.train.allo.config import ALLO
from loopless.verify.samplers.laws import misfit
from pages import measured_on, suite_page
from suites.allo_speed import cases as ours
from suites.allo_speed import plain, suite
from suites.allo_speed.cases import GRID, Follower, Learning

SMALL = Learning(batch=8, components=3, hidden=(8, 8), envs=4, length=20)
SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)
MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}

pytestmark = pytest.mark.slow


def pretended(contender):
    """A contender that does nothing, and learns as it should."""

    def prepare(case):
        return Follower(lambda: None, lambda _: None, lambda _: case.expected)

    return replace(contender, prepare=prepare)


@pytest.fixture(scope="module")
def result():
    made = Result("allo_speed", {"threads": 1}, MACHINE)
    contest = Contest(made, SHORT, lambda _: None)
    patch = pytest.MonkeyPatch()
    patch.setattr(ours, "ENCODED_BY_BATCHES", pretended(ours.ENCODED_BY_BATCHES))
    patch.setattr(ours, "IN_ONE_PROGRAM", pretended(ours.IN_ONE_PROGRAM))
    suite.measure([SMALL], contest)
    patch.setattr(suite, "time_ours", lambda steps: 2.0)
    patch.setattr(suite, "time_original", lambda steps: 30.0)
    suite.measure_whole(100, contest)
    patch.setattr(suite, "seconds_of_plots", lambda case: 5.0)
    patch.setattr(suite, "PROPOSALS", tuple(map(pretended, suite.PROPOSALS)))
    patch.setattr(suite, "WITH_LOG", pretended(suite.WITH_LOG))
    suite.measure_proposals(SMALL, contest)
    patch.undo()
    return made


def test_every_section_is_measured_and_all_forms_learn_the_same(result):
    assert {row.section for row in result.measurements} == set(suite.TITLES)
    assert {(row.status, row.reason) for row in result.measurements} == {("ok", "")}
    assert all(row.value for row in result.measurements)
    checked = [row.max_error for row in result.measurements if row.max_error is not None]
    assert len(checked) == 4 + 10
    assert max(checked) < 1e-4


def test_it_survives_json(result, tmp_path):
    save(result, tmp_path / "allo.json")
    assert load(tmp_path / "allo.json") == result


def test_the_readme_has_a_table_a_section_the_claims_and_every_target(result):
    lines = suite_page(result)
    text = "\n".join(lines)
    assert all(title in text for title in suite.TITLES.values())
    assert all(row.claim in text for row in result.measurements)
    judged = [t for row in result.measurements if row.section != "proposals" for t in row.targets]
    assert judged
    assert all(target.target in text for target in judged)
    assert lines[-1] == measured_on(result)


@pytest.mark.parametrize("name", suite.SWITCHES)
def test_every_proposal_is_a_switch_that_leaves_the_gradient_alone(name):
    run = suite.original(SMALL)
    batches = [run.coordinates[rows] for rows in SMALL.stream[0]]
    forms = plain.Form(), plain.Form(**{name: suite.SWITCHES[name]})
    assert forms[0] != forms[1]
    one, other = (
        jax.grad(partial(plain.loss, form), has_aux=True)(run.params, *batches)[0] for form in forms
    )
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), one, other)


def test_all_proposals_together_learn_the_same():
    learned = suite.original(SMALL, **suite.SWITCHES).follow(SMALL.stream)
    np.testing.assert_allclose(learned, SMALL.expected, atol=1e-5)


def test_a_form_with_another_rule_is_noticed():
    forged = replace(SMALL, rules=replace(SMALL.rules, barrier=1.0))
    call = suite.AS_IT_WAS.prepare(forged)
    verdict = SMALL.check(suite.AS_IT_WAS, call, None)
    assert "features differ" in verdict.reason


def test_our_settings_are_flags_of_the_trainer():
    config = resolve(ALLO, SMALL.words(), "loopless train allo")
    assert config == SMALL.config()
    assert (config.grid, config.problems()) == (GRID, [])


@pytest.mark.parametrize("table", [False, True])
def test_the_old_buffer_draws_pairs_of_one_segment_by_the_geometric_law(table):
    obs, terminals = np.arange(8)[None], np.zeros((1, 8), bool)
    terminals[:, -2:] = True
    case = replace(SMALL, batch=4000, rules=replace(SMALL.rules, discount=0.5))
    run = plain.Plain(case, obs, terminals, plain.Form(table_sampling=table))
    states, later = run.sample()
    gaps, room = later - states, 7 - states
    assert (gaps >= 1).all()
    assert (gaps <= room).all()
    law = np.zeros(8)
    for n in range(1, 8):
        k = np.arange(n)
        law[1 : n + 1] += 0.5**k * 0.5 / (1 - 0.5**n) / 7
    assert not misfit(gaps, law)


def test_the_loop_logs_and_draws_when_it_is_time(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "LOG_EVERY", 2)
    monkeypatch.setattr(plain, "PLOT_EVERY", 4)
    drawn = []
    monkeypatch.setattr(plain.Plain, "draw", lambda self, folder: drawn.append(self.steps))
    run = suite.original(SMALL)
    run.folder = tmp_path
    run.run(9)
    assert len(run.history) == 4
    assert drawn == [4, 8]
    assert {"graph", "dual_0", "dual_2_1", "gradient_norm"} <= run.history[0].keys()


def test_the_original_run_has_its_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(plain, "LOG_EVERY", 1)
    monkeypatch.setattr(plain, "PLOT_EVERY", 2)
    monkeypatch.setattr("suites.allo_speed.plain.DPI", 20)
    plain.run_whole(2, tmp_path, SMALL)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"eigenvectors.png", "learning_curves.png", "duals.png"}


def test_of_several_whole_runs_the_middle_one_counts(monkeypatch):
    times = iter([5.0, 2.0, 3.0])
    monkeypatch.setattr(suite, "time_ours", lambda _: next(times))
    monkeypatch.setattr(suite, "time_original", lambda _: 30.0)
    made = Result("allo_speed", {}, {})
    suite.measure_whole(100, Contest(made, SHORT, lambda _: None))
    ours_row, original = made.measurements
    assert (ours_row.value, ours_row.samples, original.role) == (3.0, 3, "reference")
    assert ours_row.details["all_seconds"] == [5.0, 2.0, 3.0]
    assert ours_row.targets[0].measured == 10


def test_whole_runs_are_a_command_of_ours_and_a_function_of_the_originals(monkeypatch):
    commands = []
    monkeypatch.setattr(suite, "run_alone", lambda *words: commands.append(words) or 7.0)
    assert suite.time_ours(300, SMALL) == suite.time_original(300) == 7.0
    command, original = commands
    assert command[:3] == ("loopless.cli", "train", "allo")
    assert command[command.index("--steps") + 1] == "300"
    assert original[0] == "suites.allo_speed.plain:run_whole"
    assert json.loads(original[1])[0] == 300
