"""Runs of a language model: the same bytes killed or not, one program, rows, what is kept."""

import logging

import jax
import numpy as np
import pytest
from lm_cases import lm, make, resume, train, write_text
from run_results import calls_of_programs, checkpoint_files, events, rows

from loopless.reference.text import window_starts
from loopless.runs.progress.clock import Clock

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module", params=["shuffled", "random, accumulated"])
def whole(request, text, tmp_path_factory):
    """A config, and its run without a disturbance."""
    options = {} if request.param == "shuffled" else {"order": "random", "accumulate": 2}
    config = lm(text, **options)
    return config, train(tmp_path_factory.mktemp("runs"), config, "whole")


def test_killed_and_resumed_without_its_text_it_ends_with_the_same_bytes(whole, text, tmp_path):
    config, expected = whole
    killed = train(tmp_path, config, "killed", dies_after=12)
    text.rename(tmp_path / "away")
    resume(killed)
    (tmp_path / "away").rename(text)
    assert checkpoint_files(killed) == checkpoint_files(expected)
    assert rows(killed) == rows(expected)
    assert events(killed) == [(0, "start"), (8, "resume"), (20, "end")]


def test_rows_tell_what_a_run_does(whole):
    config, path = whole
    found = rows(path)
    learned = [row for row in found if row["kind"] == "train"]
    assert [row["step"] for row in learned] == [4, 8, 12, 16, 20]
    tokens = config.windows * config.block
    assert [row["tokens"] for row in learned] == [tokens * row["step"] for row in learned]
    assert [row["updates"] for row in learned] == [4, 8, 12, 16, 20]
    assert learned[-1]["loss"] < 0.9 * learned[0]["loss"]
    trainer = make(config)
    epochs = 20 * config.windows / trainer.data.windows.count
    assert learned[-1]["epoch"] == pytest.approx(epochs)
    judged = [row for row in found if row["kind"] == "eval"]
    assert [row["step"] for row in judged] == [8, 16, 20]
    for row in judged:
        characters = trainer.data.characters
        share = 7 * config.block / characters
        assert row["validation_per_character"] == pytest.approx(row["validation_loss"] * share)
        for name in ("token_trigram_loss", "character_trigram_per_character"):
            assert row[name] == pytest.approx(trainer.data.baselines()[name])


def test_the_best_weights_are_those_of_the_smallest_validation_loss(whole):
    _, path = whole
    judged = {row["step"]: row["validation_loss"] for row in rows(path) if row["kind"] == "eval"}
    best = min(judged, key=judged.get)
    assert (path / "best").read_text().strip() == f"step_{best:012d}"


def test_an_update_sees_the_windows_of_its_number(text):
    config = lm(text, accumulate=2, seed=5)
    trainer = make(config)
    tokens = trainer.data.dataset.train
    found = trainer.batches(3, 4, Clock())["windows"]
    assert found.shape == (4, 2, 3, 9)
    for update in range(4):
        starts = window_starts(len(tokens), 8, 5, "shuffled", 3 + update, 6)
        expected = np.array([tokens[start : start + 9] for start in starts])
        np.testing.assert_array_equal(found[update].reshape(6, 9), expected)


@pytest.fixture(scope="module")
def trainer(text):
    """A run beyond its first chunk."""
    trainer = make(lm(text, steps=1_000))
    trainer.advance(Clock())
    return trainer


def test_a_chunk_is_one_call(trainer, tmp_path):
    def three_chunks():
        for _ in range(3):
            trainer.advance(Clock())

    assert calls_of_programs(tmp_path, three_chunks) == 3


def test_nothing_is_compiled_after_the_first_chunk_however_long_it_is(trainer, caplog):
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        trainer.chunks = trainer.chunks._replace(size=3)
        trainer.advance(Clock())
        assert not [record for record in caplog.records if "ompil" in record.message]


def test_a_row_may_be_of_several_calls(text):
    once, twice = make(lm(text, steps=1_000)), make(lm(text, steps=1_000))
    once.chunks = once.chunks._replace(size=7)
    row = once.advance(Clock())
    assert (once.step, row["updates"], row["tokens"]) == (7, 7, 168)
    first = twice.advance(Clock())
    twice.chunks = twice.chunks._replace(size=3)
    second = twice.advance(Clock())
    assert row["loss"] == pytest.approx((4 * first["loss"] + 3 * second["loss"]) / 7, rel=1e-6)
    assert np.array_equal(once.learner.weights.tokens, twice.learner.weights.tokens)


def test_learning_that_is_not_finite_is_a_failure(trainer):
    assert trainer.failure() is None
    learner, updates = trainer.learner, int(trainer.learner.updates)
    trainer.state = learner._replace(weights=jax.tree.map(lambda x: x * np.nan, learner.weights))
    trainer.advance(Clock())
    assert f"not finite at update {updates}" in trainer.failure()
