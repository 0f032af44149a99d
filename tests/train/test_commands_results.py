"""`loopless play`, `plot` and `export` on a tiny run; and the export's use from NumPy alone."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from run_results import TINY, command

import loopless
from loopless.envs import Box, autoreset
from loopless.envs.compiled.tables import Pixels
from loopless.runs import checkpoint
from loopless.runs.checkpoint import Checkpoints
from loopless.train import dqn
from loopless.train.dqn.algorithm import build

EXAMPLE = Path(__file__).parents[2] / "examples" / "use_exported_policy.py"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("commands")]


@pytest.mark.parametrize("checkpoint", ["best", "latest", "step_000000000240"])
def test_play_evaluates_a_policy(run, capsys, checkpoint):
    assert command("play", run, "--episodes", 7, "--checkpoint", checkpoint) == 0
    said = capsys.readouterr().out
    assert f"mine, {checkpoint}: " in said
    assert "over 7 episodes" in said
    mean = float(said.split(": ")[1].split(" ")[0])
    assert 0 <= mean <= 1


def test_play_records_an_episode(run, tmp_path, capsys):
    assert command("play", run, "--episodes", 1, "--record", tmp_path / "a.gif") == 0
    assert f"Recorded {tmp_path / 'a.gif'}" in capsys.readouterr().out
    with Image.open(tmp_path / "a.gif") as image:
        assert image.size == (320, 64)
        shown = 0
        for k in range(image.n_frames):
            image.seek(k)
            shown += image.info["duration"]
        assert shown >= 250  # four frames a second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--record", "a.avi"], "neither a .gif nor an .mp4"),
        (["--checkpoint", "step_7"], "has no checkpoint 'step_7'. There are: step_"),
        (["--agent", "1"], "agent must be from 0 to 0; received 1."),
        (["--episodes", "0"], "received 0"),
    ],
)
def test_play_refuses_what_it_cannot_do(run, words, message, capsys):
    assert command("play", run, *words) == 2
    assert message in capsys.readouterr().err


def test_an_env_that_renders_nothing_is_an_error_in_words(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("loopless.envs.worlds.gym.ChainEnv.render", lambda self: None)
    assert command("play", run, "--episodes", 1, "--record", tmp_path / "a.gif") == 2
    assert "no frames" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_plot_draws_a_run_anew_and_several_beside_each_other(run, tmp_path, capsys):
    assert command("plot", run) == 0
    assert "pictures in" in capsys.readouterr().out
    target = tmp_path / "both.png"
    assert command("plot", run, run, "--output", target) == 0
    with Image.open(target) as image:
        assert min(image.size) > 200
    assert command("plot", run, run, "--output", tmp_path / "both.txt") == 2


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("use_exported_policy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_exported_policy_acts_like_the_network_from_numpy_alone(run, example, capsys, tmp_path):
    assert command("export", run, "--output", tmp_path / "mine.safetensors") == 0
    policy = loopless.load_policy(tmp_path / "mine.safetensors")
    assert policy.card["run"] == "mine"
    assert policy.card["env"] == TINY.env
    weights = Checkpoints(run).load("best", kind="weights").arrays["weights/online"]
    algorithm = build(TINY, Box((5,)), 2)
    obs = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    values = np.asarray(algorithm.values(jnp.asarray(weights), obs))
    np.testing.assert_allclose(policy.outputs(obs), values, rtol=1e-5, atol=1e-6)
    assert [policy(x) for x in obs] == values.argmax(-1).tolist() == policy(obs).tolist()
    assert [loopless.load_policy(run)(x) for x in obs] == policy(obs).tolist()
    returns = example.main(
        [str(tmp_path / "mine.safetensors"), "--episodes", "3",
         "--env", "loopless.envs.worlds.gym:loopless/Chain-v0"]
    )  # fmt: skip
    assert len(returns) == 3
    assert all(0 <= value <= 1 for value in returns)


def test_an_export_goes_into_the_run_if_no_place_is_named(copied, capsys):
    assert command("export", copied) == 0
    assert (copied / "policy.safetensors").exists()
    assert (copied / "policy.json").exists()
    assert command("export", copied, "--output", "nowhere/policy.safetensors") == 2


@pytest.mark.parametrize("options", [{"duelling": True}, {"activation": "selu"}], ids=str)
def test_exported_pictures_are_seen_by_numpy_as_by_the_network(options, tmp_path):
    config = replace(TINY, env="loopless/Pixels-v0", hidden=(8,), **options)
    env = Pixels()
    algorithm = build(config, autoreset(env, 1).obs_space, env.actions)
    size = jax.eval_shape(algorithm.init, jax.random.key(0))[0].weights.size
    weights = np.random.default_rng(0).normal(size=size).astype(np.float32) / 5
    arrays, card = dqn.export(config, {"online": weights})
    checkpoint.export_weights(tmp_path / "p.safetensors", arrays, card)
    policy = loopless.load_policy(tmp_path / "p.safetensors")
    pictures = np.random.default_rng(1).integers(0, 256, (3, *env.obs_shape)).astype(np.uint8)
    values = np.asarray(algorithm.values(jnp.asarray(weights), pictures))
    np.testing.assert_allclose(policy.outputs(pictures), values, rtol=1e-4, atol=1e-4)
