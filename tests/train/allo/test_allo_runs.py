"""Whole runs of ALLO: the same bytes however they are cut, what they leave, what commands do."""

import json
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from allo_cases import PORTAL, TINY
from run_results import checkpoint_files, command, events, resume, rows, train, trainer_of
from safetensors.numpy import load_file

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import BadRun
from loopless.runs.pictures import snapshots
from loopless.runs.progress.clock import Clock
from loopless.train.allo.algorithm import Algorithm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]

KINDS = {
    "plain": {},
    "doors and portals, two seeds and barriers": {
        "grid": PORTAL, "doors": 1, "seeds": 2, "barrier": (1.0, 2.0), "permute_at": 25,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """From a kind to its config, and its run without a disturbance; trained once."""

    @cache
    def run(kind):
        config = replace(TINY, **KINDS[kind])
        assert not config.problems(), config.problems()
        return config, train(tmp_path_factory.mktemp("runs"), config, "whole")

    return run


@pytest.fixture(params=KINDS)
def whole(request, trained):
    return trained(request.param)


@pytest.fixture
def plain(trained):
    return trained("plain")[1]


def test_killed_and_resumed_it_ends_with_the_same_bytes(whole, tmp_path):
    config, expected = whole
    killed = train(tmp_path, config, "killed", dies_after=50)
    resume(killed)
    assert checkpoint_files(killed) == checkpoint_files(expected)
    assert rows(killed) == rows(expected)
    assert events(killed) == [(0, "start"), (40, "resume"), (60, "end")]
    found = [snapshots.history(path) for path in (killed, expected)]
    assert [int(one["step"]) for one in found[0]] == [0, 20, 40, 60]
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("log_every", [7, 1000])
def test_chunks_change_nothing(whole, log_every):
    config, expected = whole
    trainer = trainer_of(replace(config, log_every=log_every))
    while trainer.step < trainer.total:
        trainer.advance(Clock())
    found = Checkpoints(expected).load().arrays
    for name, array in sorted(trainer.arrays().items(), reverse=True):
        np.testing.assert_array_equal(array, found[name], err_msg=name)


def test_chunks_that_all_begin_at_step_0_are_caught(plain, monkeypatch):
    right = Algorithm.chunk

    def forgetful(self, learner, table, data, key, first, steps):
        return right(self, learner, table, data, key, 0 * first, steps)

    monkeypatch.setattr(Algorithm, "chunk", forgetful)
    with pytest.raises(AssertionError, match="weights/online"):
        test_chunks_change_nothing((TINY, plain), 7)


def test_rows_tell_what_a_run_does(whole):
    config, path = whole
    found = rows(path)
    assert [row["step"] for row in found] == sorted({*range(10, 61, 10), config.permute_at or 10})
    last = found[-1]
    for name in ("similarity", "eigenvalue", "dual"):
        assert np.shape(last[name]) == (config.agents, 3)
    shape = () if config.agents == 1 else (4,)
    for name in ("similarity_mean", "orthogonality_error", "eigenvalue_error", "barrier"):
        assert np.shape(last[name]) == shape
        assert np.isfinite(last[name]).all()
    assert np.all(np.asarray(last["updates"]) == 60)
    np.testing.assert_allclose(last["similarity_mean"], np.mean(last["similarity"], 1).squeeze())
    assert ("hitting_time_correlation" in last) == ("hitting_time_correlation" in found[1])
    assert np.all(np.asarray(last["graph_loss"]) > 0)


def test_a_snapshot_holds_what_the_pictures_need(whole):
    config, path = whole
    last = snapshots.history(path)[-1]
    states, agents = len(last["cells"]), config.agents
    assert last["walls"].dtype == bool
    assert last["walls"].sum() + states == last["walls"].size
    assert not last["walls"][tuple(last["cells"].T)].any()
    assert last["learned"].shape == (agents, states, 3)
    assert last["truth"].shape[0] == states
    assert last["truth"].shape[1] == len(last["spaces"]) == len(last["kernel_eigenvalues"]) >= 3
    assert last["eigenvalues"].shape == last["duals"].shape == (agents, 3)
    assert last["visits"].sum() == config.seeds * 20 * 42
    np.testing.assert_allclose(last["similarities"], rows(path)[-1]["similarity"], rtol=1e-6)


def test_seeds_side_by_side_are_the_runs_of_each(whole):
    config, path = whole
    if config.agents == 1:
        return
    found = Checkpoints(path).load(kind="weights").arrays["weights/online"]
    alone = trainer_of(replace(config, seed=1, seeds=1, barrier=(2.0,)))
    while alone.step < alone.total:
        alone.advance(Clock())
    np.testing.assert_allclose(alone.arrays()["weights/online"], found[3], rtol=1e-3, atol=1e-4)
    assert np.abs(found[3] - found[2]).max() > 1e-3
    assert np.abs(found[3] - found[1]).max() > 1e-3


def test_other_data_than_before_is_refused(plain, tmp_path):
    trainer = trainer_of(replace(TINY, seed=5))
    with pytest.raises(BadRun, match="have changed since step_000000000060"):
        trainer.restore(Checkpoints(plain).load())


def test_an_export_is_the_encoder(plain, tmp_path, commands):
    target = tmp_path / "encoder.safetensors"
    assert command("export", plain, "--output", target, "--checkpoint", "latest") == 0
    arrays, card = load_file(target), json.loads(target.with_suffix(".json").read_text())
    last = snapshots.history(plain)[-1]
    x = (last["cells"][:, ::-1] - np.array([5, 3]) / 2) / 2.5
    for layer in range(card["layers"]):
        x = x @ arrays[f"layers/{layer}/weight"] + arrays[f"layers/{layer}/bias"]
        x = np.maximum(x, 0) if layer < card["layers"] - 1 else x
    np.testing.assert_allclose(x, last["learned"][0], atol=1e-5)
    np.testing.assert_allclose(arrays["eigenvalues"], last["eigenvalues"][0], rtol=1e-6)
    expected = 1 / np.sqrt(np.maximum(arrays["eigenvalues"][1:], 1e-6))
    np.testing.assert_allclose(arrays["scales"], [0, *expected], rtol=1e-6)


def test_there_is_no_policy_to_play(plain, commands, capsys):
    assert command("play", plain) == 2
    assert "has no policy to play" in capsys.readouterr().err


def test_one_of_several_agents_can_be_exported(whole, tmp_path, commands, capsys):
    config, path = whole
    target = tmp_path / "one.safetensors"
    assert command("export", path, "--output", target, "--agent", config.agents - 1) == 0
    assert load_file(target)["eigenvalues"].shape == (3,)
    assert command("export", path, "--output", target, "--agent", config.agents) == 2
    assert f"agent must be from 0 to {config.agents - 1}" in capsys.readouterr().err


def test_a_user_s_trajectories_train_without_an_environment(tmp_path, commands, capsys):
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.choice([-1, 1], 400)) % 7
    angle = 2 * np.pi * walk / 7
    obs = np.stack([np.cos(angle), np.sin(angle)], 1)
    marks = np.zeros(400)
    marks[49::50] = marks[48::50] = 1
    np.savez(tmp_path / "mine.npz", obs=obs, terminals=marks)
    words = ["--data", tmp_path / "mine.npz", "--runs", tmp_path, "--run", "mine"]
    words += ["--steps", 20, "--components", 3, "--hidden", 6, "--batch-size", 16]
    assert command("train", "allo", *words) == 0
    assert "Eigenvalues" in capsys.readouterr().err
    last = snapshots.history(tmp_path / "mine")[-1]
    assert last["learned"].shape == (1, 7, 3)
    assert "truth" not in last
    assert "walls" not in last
    assert "similarity" not in rows(tmp_path / "mine")[-1]
    assert command("export", tmp_path / "mine") == 0
    shutil.copy(tmp_path / "mine.npz", tmp_path / "kept.npz")
    np.savez(tmp_path / "mine.npz", obs=-obs, terminals=marks)
    assert command("resume", tmp_path / "mine", "--steps", 30) == 2
    assert "have changed since" in capsys.readouterr().err
