"""Compiled runs of PPO: the same bytes killed or not; one program; what commands do with them."""

import json
import logging
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from PIL import Image
from run_results import (
    calls_of_programs,
    checkpoint_files,
    command,
    events,
    resume,
    rows,
    train,
    trainer_of,
)
from safetensors.numpy import load_file

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.progress.clock import Clock
from loopless.train import registry
from loopless.train.commands import agents_of
from loopless.train.ppo.config import PPO

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]

TINY = PPO(
    env="loopless/Chain-v0", hidden=(6,), envs=2, horizon=8, minibatches=2, epochs=2, steps=320,
    log_every=32, eval_every=64, eval_episodes=4, checkpoint_every=64, learning_rate=0.01,
    normalize_obs=True, normalize_rewards=True,
)  # fmt: skip
KINDS = {
    "normalised": {},
    "recurrent, two seeds": {
        "core": "gru", "core_width": 4, "seeds": 2, "normalize_rewards": False, "target_kl": 0.01,
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def whole(request, tmp_path_factory):
    """A config, and its run without a disturbance."""
    config = replace(TINY, **KINDS[request.param])
    assert not config.problems(), config.problems()
    return config, train(tmp_path_factory.mktemp("runs"), config, "whole")


def test_killed_and_resumed_it_ends_with_the_same_bytes(whole, tmp_path):
    config, expected = whole
    killed = train(tmp_path, config, "killed", dies_after=160)
    resume(killed)
    assert checkpoint_files(killed) == checkpoint_files(expected)
    assert rows(killed) == rows(expected)
    assert events(killed) == [(0, "start"), (128, "resume"), (320, "end")]


def test_rows_tell_what_a_run_does(whole):
    _, path = whole
    found = rows(path)
    train_rows = [row for row in found if row["kind"] == "train"]
    assert [row["step"] for row in train_rows] == list(range(32, 321, 32))
    last = train_rows[-1]
    made = np.asarray(last["updates"]) + np.asarray(last.get("stopped_updates", 0))
    assert (made == 20 * 4).all()
    assert np.all(np.asarray(last["entropy"]) > 0)
    for name in ("approximate_kl", "clip_fraction", "explained_variance", "value_loss"):
        assert np.isfinite(last[name]).all(), name
    rates = [row["learning_rate"] for row in train_rows]
    assert rates == pytest.approx([0.01 * (1 - (row["step"] - 16) / 320) for row in train_rows])
    assert [row["step"] for row in found if row["kind"] == "eval"] == [64, 128, 192, 256, 320]


def test_statistics_are_saved_with_the_weights_and_play_by_them(whole):
    config, path = whole
    arrays = Checkpoints(path).load("best", kind="weights").arrays
    acting = agents_of(arrays, config.seeds)[-1]
    assert acting.keys() == {"online", "obs_mean", "obs_variance"}
    assert np.abs(acting["obs_mean"]).max() > 0
    if config.core != "none":
        return
    player = registry.trainer("ppo").player(TINY, acting)
    envs = type("Envs", (), {})()
    trainer = trainer_of(TINY)
    world = trainer.program.world
    envs.obs_space, envs.action_space = world.obs_space, world.action_space
    envs.max_steps = world.max_steps
    policy = player.policy(envs)
    obs = np.eye(5, dtype=np.float32)
    scale = 1 / np.sqrt(acting["obs_variance"] + np.float32(1e-8))
    net = trainer.program.algorithm.rebuild(acting["online"])
    expected = net(np.clip((obs - acting["obs_mean"]) * scale, -10, 10))[0]
    np.testing.assert_allclose(policy.params(obs), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(policy.params(obs), net(obs)[0], rtol=1e-2)


def test_agents_of_one_program_have_seeds_of_their_own():
    both, second = trainer_of(replace(TINY, seeds=2, seed=3)), trainer_of(replace(TINY, seed=4))
    np.testing.assert_allclose(both.learner.weights[1], second.learner.weights, rtol=1e-6)
    assert not np.array_equal(both.learner.weights[0], both.learner.weights[1])


@pytest.fixture(scope="module")
def trainer():
    """A compiled run beyond its first chunk."""
    trainer = trainer_of(replace(TINY, steps=16_000))
    trainer.advance(Clock())
    return trainer


def test_a_chunk_is_one_call(trainer, tmp_path):
    def three_chunks():
        for _ in range(3):
            trainer.advance(Clock())

    assert calls_of_programs(tmp_path, three_chunks) == 3


def test_nothing_is_compiled_after_the_first_chunk_however_long_it_is(trainer, caplog):
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        trainer.advance(Clock())
        trainer.chunks = trainer.chunks._replace(size=1)
        trainer.advance(Clock())
        assert not [record for record in caplog.records if "ompil" in record.message]


def test_a_chunk_does_not_call_back_into_python(trainer):
    args = trainer.state, trainer.key, np.int32(0), np.int32(2)
    text = jax.jit(trainer.program.chunk).lower(*args).compile().as_text()
    assert "while" in text
    for word in ("callback", "infeed", "outfeed", "send(", "recv(", "host_compute"):
        assert word not in text.lower(), word


# --- commands ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("commands")
def test_each_agent_plays_is_recorded_and_exported(whole, tmp_path, capsys):
    config, path = whole
    found = []
    for agent in range(config.seeds):
        film, file = tmp_path / f"{agent}.gif", tmp_path / f"{agent}.safetensors"
        assert command("play", path, "--episodes", 3, "--agent", agent, "--record", film) == 0
        assert "over 3 episodes" in capsys.readouterr().out
        with Image.open(film) as image:
            assert image.size == (320, 64)
        assert command("export", path, "--agent", agent, "--output", file) == 0
        card = json.loads(file.with_suffix(".json").read_text())
        assert (card["trainer"], card["layers"], card["actions"]) == ("ppo", 2, 2)
        assert "obs_mean" in card["use"]
        found.append(load_file(file)["obs_mean"])
    assert len({array.tobytes() for array in found}) == config.seeds
    assert command("play", path, "--agent", config.seeds) == 2
    assert (
        f"agent must be from 0 to {config.seeds - 1}; received {config.seeds}."
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("commands")
def test_a_run_trains_on_when_it_is_resumed_for_longer(whole, tmp_path, capsys):
    copy = shutil.copytree(whole[1], tmp_path / "copy")
    assert command("resume", copy, "--steps", 352) == 0
    last = json.loads((copy / "metrics.jsonl").read_text().splitlines()[-2])
    assert last["step"] == 352
