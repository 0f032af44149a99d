"""The suite `avatarl_learning` on made-up outcomes, from end to end."""

import pytest

from loopless.bench.result import Result, load
from loopless.bench.suites import Options
from pages import measured_on, suite_page
from suites.avatarl_learning import suite
from suites.dqn_learning.runs import Outcome, RunFailed

MACHINE = {"date": "2026-01-01T00:00", "commit": {"id": "0123456789"}, "cpu": "some"}
CORPUS = {"name": "some text", "bytes": 2_000_000, "sha256": "0123456789abcdef"}


def text(job, loss):
    final = {
        "validation_loss": 2 * loss,
        "validation_per_character": loss,
        "token_trigram_per_character": 1.3,
        "character_trigram_per_character": 1.8,
    }
    details = {"tokens_per_s": 9000.0, "corpus": CORPUS}
    curve = [1, 2], [[5.0, 2 * loss]]
    return Outcome(job.command, "a = 1", 60.0, [final], [], *curve, details=details)


class Made:
    """Runs that have ended already."""

    def __init__(self, losses):
        self.losses = losses

    def outcomes(self, jobs):
        for job in jobs:
            loss = self.losses.get(job.name.partition("-")[0], 1.5)
            yield job, RunFailed(f"{job.name}: ended") if loss is None else text(job, loss)


def made(tmp_path=None, losses=(), **options):
    result, path = Result("avatarl_learning", {"threads": 1}, MACHINE), None
    if tmp_path is not None:
        path = tmp_path / "avatarl_learning.json"
    runs = Made(dict(losses))
    suite.train(runs, Options(json=path, **options), result, lambda _: None)
    return result


def by_name(result):
    return {row.contender: row for row in result.measurements}


def test_everyone_has_a_row_and_it_is_written(tmp_path):
    result = made(tmp_path)
    expected = [suite.CRITIC, *(each.label for each in suite.STUDENTS)]
    assert list(by_name(result)) == [*expected, suite.CHARACTERS, suite.TOKEN_TRIGRAM]
    assert [row.samples for row in result.measurements][:3] == [1, 3, 3]
    assert load(tmp_path / "avatarl_learning.json") == result
    assert result.settings["corpus"] == CORPUS
    assert result.settings["tokens"] == 3000 * 8 * 64


def test_the_trigram_of_characters_is_to_be_beaten():
    rows = by_name(made(losses={"full": 1.9}))
    assert [x.met for x in rows["AvataRL, fixed"].targets] == [True, None]
    assert [x.met for x in rows["AvataRL, full"].targets] == [False, None]
    assert [x.met for x in rows[suite.CRITIC].targets] == [True]


def test_the_distance_to_plain_cross_entropy_is_stated():
    rows = by_name(made(losses={"fixed": 1.6}))
    assert rows["AvataRL, fixed"].targets[-1].measured == pytest.approx(0.1)
    assert len(rows[suite.PLAIN].targets) == 1


def test_a_failed_student_is_a_row_and_a_failed_critic_the_end():
    result = made(losses={"soft": None})
    assert by_name(result)["cross-entropy to AvataRL's target"].status == "failed"
    assert result.ours_is_wrong
    (row,) = made(losses={"critic": None}).measurements
    assert (row.contender, row.status) == (suite.CRITIC, "failed")


def test_quick_is_one_short_student():
    result = made(quick=True)
    assert list(by_name(result))[:2] == [suite.CRITIC, "AvataRL, fixed"]
    assert "--steps 100" in result.measurements[1].note


def test_the_readme_has_rows_corpus_and_targets():
    result = made()
    lines = suite_page(result)
    text = "\n".join(lines)
    assert "| AvataRL, fixed | 3 | 1.500 | 1.500 … 1.500 | 3.000 | 9,000 |" in text
    assert "0.2M parameters, 1.5M tokens; some text, 2.0 MB, SHA-256 0123456789ab…." in text
    assert all(target.target in text for row in result.measurements for target in row.targets)
    assert lines[-1] == measured_on(result)
    assert set(suite.TITLES) == {row.section for row in result.measurements}
