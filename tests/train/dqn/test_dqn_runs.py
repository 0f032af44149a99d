"""Compiled runs of DQN: one seed, the same bytes, in chunks of any length, killed or not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dqn_cases import assert_near
from run_results import TINY, checkpoint_files, events, resume, rows, train, trainer_of

from loopless.runs.checkpoint import Checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]

KINDS = {
    "uniform": {},
    "uniform, two seeds": {"seeds": 2, "sarsa": True, "target": "polyak", "target_every": 8},
    "prioritized": {"prioritized": "exact", "double": True, "n_step": 3},
    "prioritized, two seeds": {"prioritized": "block", "seeds": 2, "exploration": "boltzmann"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function from a config to its run without a disturbance, trained once and read by many."""

    @cache
    def run_of(config):
        assert not config.problems(), config.problems()
        return train(tmp_path_factory.mktemp("runs"), config, "whole")

    return run_of


@pytest.fixture(scope="module", params=KINDS)
def whole(request, trained):
    config = replace(TINY, **KINDS[request.param])
    return config, trained(config)


@pytest.fixture(scope="module")
def plain(trained):
    return trained(TINY)


def test_killed_and_resumed_it_ends_with_the_same_bytes(whole, tmp_path):
    """Killed between two checkpoints: what was learned after the last one is learned again."""
    config, expected = whole
    killed = train(tmp_path, config, "killed", dies_after=200)
    assert events(killed) == [(0, "start")]
    resume(killed)
    assert checkpoint_files(killed) == checkpoint_files(expected)
    assert rows(killed) == rows(expected)
    assert (killed / "best").read_text() == (expected / "best").read_text()
    assert events(killed) == [(0, "start"), (160, "resume"), (400, "end")]


def test_the_same_seed_gives_the_same_bytes_and_rows(plain, tmp_path):
    again = train(tmp_path, TINY, "again")
    files = checkpoint_files(again)
    assert len(files) > 5
    assert files == checkpoint_files(plain)
    assert rows(again) == rows(plain)


def test_another_seed_gives_others(plain, tmp_path):
    other = train(tmp_path, replace(TINY, seed=1), "other")
    assert rows(other) != rows(plain)
    mine, theirs = (Checkpoints(path).load().arrays for path in (other, plain))
    assert not np.array_equal(mine["weights/online"], theirs["weights/online"])


def test_the_length_of_chunks_changes_nothing(plain, tmp_path):
    coarse = train(tmp_path, replace(TINY, log_every=80), "coarse")
    assert checkpoint_files(coarse) == checkpoint_files(plain)
    assert [row["step"] for row in rows(coarse) if row["kind"] == "train"] == [
        80,
        160,
        240,
        320,
        400,
    ]


def test_updates_one_by_one_train_the_same_agent(plain, tmp_path):
    loop = train(tmp_path, replace(TINY, update="loop", steps=160, eval_every=0), "loop")
    fused = train(tmp_path, replace(TINY, steps=160, eval_every=0), "fused")
    ours, theirs = (Checkpoints(path).load().arrays for path in (loop, fused))
    assert_near(ours, theirs, rtol=1e-5, atol=1e-6)
    for name in ("loss", "q_mean", "return_mean", "updates"):
        np.testing.assert_allclose(rows(loop)[-1][name], rows(fused)[-1][name], rtol=1e-5)


def test_agents_of_one_program_have_seeds_of_their_own():
    both = trainer_of(replace(TINY, seeds=2, seed=3))
    second = trainer_of(replace(TINY, seed=4))
    np.testing.assert_array_equal(both.learner.weights[1], second.learner.weights)
    assert not np.array_equal(both.learner.weights[0], both.learner.weights[1])


def test_rows_tell_what_a_run_does(whole):
    config, path = whole
    found = rows(path)
    train_rows = [row for row in found if row["kind"] == "train"]
    evals = [row for row in found if row["kind"] == "eval"]
    assert [row["step"] for row in train_rows] == list(range(40, 401, 40))
    assert [row["step"] for row in evals] == [80, 160, 240, 320, 400]
    last, each = train_rows[-1], config.seeds
    assert last["updates"] == ([40] * each if each > 1 else 40)
    assert last["replay_size"] == ([96] * each if each > 1 else 96)
    assert np.all(np.asarray(last["loss"]) > 0)
    assert "loss" not in train_rows[0]  # nothing is learned before learning starts
    level = "temperature" if config.exploration == "boltzmann" else "epsilon"
    falls = [row[level] for row in train_rows]
    assert falls == pytest.approx([max(0.05, 1 - 0.95 * row["step"] / 200) for row in train_rows])
    assert np.all(np.diff([np.sum(row["episodes"]) for row in train_rows]) > 0)
