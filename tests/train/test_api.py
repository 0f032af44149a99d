"""Training from Python: `loopless.train_dqn` and its like, and the run that they return."""

import subprocess
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import equinox as eqx
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import loopless
from loopless.runs.config.schema import Table
from loopless.runs.failures import BadConfig
from loopless.train import api, registry, typed_settings

pytestmark = pytest.mark.slow  # every run compiles

QUICK = {
    "learning_starts": 200, "log_every": 200, "eval_every": 0, "checkpoint_every": 10_000,
    "plot_every": 0, "buffer_size": 1_000, "batch_size": 16, "hidden": [8],
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Nothing is drawn: a renderer would start a process for each run."""
    monkeypatch.setattr("loopless.runs.session.Renderer", Unseen)


class Unseen:
    def __init__(self, *_, **__):
        pass

    def request(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor."""

    def __init__(self, length=4):
        self.observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.length = length

    def _see(self):
        return np.array([self.at / self.length], np.float32)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return self._see(), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        return self._see(), -1.0, self.at >= self.length, False, {}


def small_network(shape, outputs, key):
    return eqx.nn.MLP(shape[0], outputs, 8, 1, key=key)


def train(tmp_path, env="CartPole-v1", **settings):
    return loopless.train_dqn(env, **{**QUICK, "steps": 400, "runs": tmp_path, **settings})


# --- the run that is returned


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """A run that its callback stopped at step 400, and the rows that it was shown."""
    rows = []

    def watch(row):
        rows.append(row)
        return "stop" if row["step"] >= 400 else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loopless.runs.session.Renderer", Unseen)
        settings = {**QUICK, "steps": 1_000, "eval_every": 200, "eval_episodes": 2}
        root = tmp_path_factory.mktemp("runs")
        run = loopless.train_dqn("CartPole-v1", runs=root, callback=watch, quiet=True, **settings)
    return run, rows


def test_a_callback_sees_every_row_and_stops_the_training(stopped_run):
    run, rows = stopped_run
    assert run.stopped
    assert [(row["step"], row["kind"]) for row in rows] == [
        (200, "train"), (200, "eval"), (400, "train"), (400, "eval"),
    ]  # fmt: skip
    assert all(type(row["episodes"]) is int for row in rows if row["kind"] == "train")
    assert type(rows[1]["eval_return"]) is float


def test_metrics_are_the_columns_of_the_log(stopped_run):
    run, rows = stopped_run
    assert run.metrics["step"].tolist() == [200, 400]
    np.testing.assert_allclose(run.metrics["loss"][1], rows[2]["loss"], rtol=1e-5)
    assert run.evaluations["eval_return"].shape == (2,)


def test_a_policy_acts_on_one_observation_and_on_several(stopped_run):
    run, _ = stopped_run
    assert run.policy(np.zeros(4, np.float32)) in (0, 1)
    assert run.policy(np.zeros((3, 4), np.float32)).shape == (3,)


def test_evaluate_plays_episodes_as_the_command_does(stopped_run, capsys):
    from loopless import cli

    run, _ = stopped_run
    evaluation = run.evaluate(3, seed=5)
    assert evaluation.returns.shape == (3,)
    assert evaluation.cut == 0
    assert cli.main(["play", str(run.folder), "--episodes", "3", "--seed", "5"]) == 0
    assert f"{evaluation.mean:.2f} ±" in capsys.readouterr().out
    with pytest.raises(BadConfig, match="episodes must be at least 1; received 0"):
        run.evaluate(0)


def test_resume_trains_on_to_the_end_and_the_policy_is_the_new_one(stopped_run):
    run, _ = stopped_run
    run.policy  # noqa: B018  (loads the weights of step 400)
    assert run.resume(quiet=True) is run
    assert not run.stopped
    assert run.metrics["step"].tolist() == [200, 400, 600, 800, 1000]
    assert run._policy is None
    again = loopless.open_run(run.folder)
    assert again.config == run.config
    assert again.metrics["step"].tolist() == run.metrics["step"].tolist()


def test_a_stopped_and_resumed_run_equals_one_that_was_not_stopped(tmp_path):
    settings = {"steps": 600, "quiet": True}
    whole = train(tmp_path, run="whole", **settings)
    parts = train(tmp_path, run="parts", callback=lambda row: "stop", **settings)
    assert parts.metrics["step"].tolist() == [200]
    parts.resume(quiet=True)
    assert parts.metrics["loss"].tolist()[1:] == whole.metrics["loss"].tolist()[1:]


def test_a_callback_that_returns_something_else_is_refused_and_the_run_is_saved(tmp_path):
    with pytest.raises(TypeError, match=r'must return "stop".*received True'):
        train(tmp_path, quiet=True, callback=lambda row: True)
    run = loopless.open_run(tmp_path / "dqn-CartPole-v1-0").resume(quiet=True)
    assert run.metrics["step"].tolist() == [200, 400]


def test_quiet_prints_nothing_and_otherwise_progress_goes_to_stderr(tmp_path, capfd):
    train(tmp_path, quiet=True)
    assert capfd.readouterr() == ("", "")
    train(tmp_path)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Run " in err
    assert "done, 400 steps" in err


# --- environments, wrappers, networks


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (Corridor, "test_api:Corridor"),
        (lambda: Corridor(6), "python:lambda"),
        (Corridor(5), "python:Corridor"),
        (CartPoleEnv, "gymnasium.envs.classic_control.cartpole:CartPoleEnv"),
    ],
    ids=["class", "function", "object", "Gymnasium's class"],
)
def test_an_environment_may_be_a_class_a_function_or_an_object(tmp_path, env, name, monkeypatch):
    monkeypatch.setitem(sys.modules, "test_api", sys.modules[__name__])
    monkeypatch.setattr(Corridor, "__module__", "test_api")
    run = train(tmp_path, env, quiet=True)
    assert run.config.env.startswith(name)
    assert run.metrics["step"].tolist() == [200, 400]
    assert run.policy(np.zeros(run.policy.card["observation"]["shape"])) in (0, 1)


def test_an_environment_object_is_trained_on_as_it_is_and_is_left_alone(tmp_path):
    env = Corridor(length=2)
    env.at = 99
    run = train(tmp_path, env, quiet=True, env_kwargs={"max_episode_steps": 50})
    assert env.at == 99
    lengths = run.evaluate(2).lengths
    assert (lengths <= 50).all()
    assert (run.metrics["length_mean"] >= 2).all()


def test_a_wrapper_and_arguments_of_the_environment_are_used(tmp_path):
    def penalize(env):
        return gymnasium.wrappers.TransformReward(env, lambda reward: reward - 9)

    run = train(
        tmp_path, Corridor, wrappers=[penalize], env_kwargs={"length": 2, "max_episode_steps": 20},
        quiet=True,
    )  # fmt: skip
    evaluation = run.evaluate(2)
    np.testing.assert_array_equal(evaluation.returns, -10.0 * evaluation.lengths)
    assert run.config.env_kwargs == Table(length=2, max_episode_steps=20)


def test_a_network_of_ones_own_is_trained_saved_and_acts(tmp_path):
    run = train(tmp_path, network=small_network, quiet=True)
    policy = run.policy
    assert policy(np.zeros(4)) in (0, 1)
    assert policy(np.zeros((3, 4))).shape == (3,)
    with pytest.raises(ValueError, match=r"shape \(5,\); expected \(4,\)"):
        policy(np.zeros(5))
    before = run.evaluate(2, checkpoint="latest").returns
    again = loopless.open_run(run.folder, network=small_network)
    np.testing.assert_array_equal(again.evaluate(2, checkpoint="latest").returns, before)
    assert again.resume(600, quiet=True).metrics["step"].tolist() == [200, 400, 600]


class Pair(eqx.Module):
    policy: eqx.nn.MLP
    value: eqx.nn.MLP

    def __call__(self, x):
        return self.policy(x), self.value(x)


def pair(shape, outputs, key):
    return Pair(
        eqx.nn.MLP(shape[0], outputs, 8, 1, key=key), eqx.nn.MLP(shape[0], "scalar", 8, 1, key=key)
    )


def test_ppo_takes_a_network_of_policy_and_value(tmp_path):
    settings = {"horizon": 16, "envs": 2, "minibatches": 2, "log_every": 32, "eval_every": 0}
    run = loopless.train_ppo(
        "Pendulum-v1", steps=64, network=pair, runs=tmp_path, quiet=True, **settings
    )
    assert run.policy(np.zeros(3)).shape == (1,)
    assert np.isfinite(run.metrics["loss"]).all()
    wrong = "network must return .outputs, value., of shapes .1,. and .., for one observation"
    with pytest.raises(BadConfig, match=wrong):
        loopless.train_ppo("Pendulum-v1", network=small_network, runs=tmp_path, **settings)


def test_a_network_with_wrong_outputs_is_refused(tmp_path):
    def wrong(shape, outputs, key):
        return eqx.nn.MLP(shape[0], outputs + 1, 8, 1, key=key)

    with pytest.raises(BadConfig, match=r"one value for each of 2 actions.*returned \(3,\)"):
        train(tmp_path, network=wrong)
    assert not list(tmp_path.iterdir())


def test_an_object_of_another_process_is_asked_for_again(tmp_path):
    from loopless.envs import EnvError, objects

    run = train(tmp_path, lambda: Corridor(3), quiet=True, run="mine")
    objects._kept.pop(run.config.env)
    with pytest.raises(EnvError, match="was an object of another Python process"):
        loopless.open_run(run.folder).evaluate(1)
    again = loopless.open_run(run.folder, env=lambda: Corridor(3))
    assert again.evaluate(1).returns.shape == (1,)


# --- settings


def test_all_wrong_settings_are_named_at_once():
    with pytest.raises(BadConfig) as refused:
        loopless.train_dqn(learning_rat=1e-3, hidden=8, gamma=2.0)
    assert refused.value.problems == [
        "train_dqn has no setting 'learning_rat'. Did you mean 'learning_rate'?",
        "hidden must be a list, each an integer; received 8.",
        "gamma must be between 0 and 1; received 2.0.",
    ]
    assert isinstance(refused.value, ValueError)


def test_several_seeds_of_a_hosted_environment_are_refused_in_words():
    with pytest.raises(BadConfig, match="Call train_dqn once for each seed"):
        loopless.train_dqn(Corridor, seeds=2)


@pytest.mark.parametrize(
    ("trainer", "typed"),
    [
        ("dqn", typed_settings.DQNSettings),
        ("ppo", typed_settings.PPOSettings),
        ("allo", typed_settings.ALLOSettings),
        ("lm", typed_settings.LMSettings),
        ("avatarl", typed_settings.AvataRLSettings),
    ],
)
def test_the_typed_settings_are_those_of_the_config(trainer, typed):
    hints, cls = typing.get_type_hints(typed), registry.config_class(trainer)
    named = {field.name for field in fields(cls)} - {"network", "env"}
    assert set(hints) - {"env"} == named
    plain = typing.get_type_hints(cls)
    assert {name: hints[name] for name in named} == {name: loosened(plain[name]) for name in named}


def loosened(hint):
    """Return what Python may pass for a setting of this type."""
    if hint is Table:
        return Mapping[str, typing.Any]
    if hint in (Path, Path | None):
        return str | hint
    if typing.get_origin(hint) is tuple:
        return Sequence[typing.get_args(hint)[0]]
    return hint


def test_importing_loopless_imports_neither_numpy_nor_jax():
    code = (
        "import sys, loopless\n"
        "assert callable(getattr(loopless, '__getattr__'))\n"
        "assert {'train_dqn', 'train_ppo', 'train_allo', 'train_lm', 'train_avatarl'} <= "
        "set(dir(loopless))\n"
        "assert not {'numpy', 'jax', 'gymnasium'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_trainers_of_representations_and_of_text_run_too(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a rose is a rose. " * 400)
    small = {"runs": tmp_path, "quiet": True, "log_every": 2, "eval_every": 0, "plot_every": 0}
    model = {"layers": 1, "heads": 1, "width": 16, "block": 16, "batch": 2, "tokenizer": "char"}
    run = loopless.train_lm(text=text, steps=4, **small, **model)
    assert np.isfinite(run.metrics["loss"]).all()
    assert len(run.sample("a ", tokens=5)) > 0
    with pytest.raises(BadConfig, match="plays in no environment"):
        run.evaluate()
    student = loopless.train_avatarl(
        text=text, steps=2, critic=run.folder, top_k=2, **{**small, "log_every": 1}, **model
    )
    assert np.isfinite(student.metrics["loss"]).all()
    allo = loopless.train_allo(
        grid="GridRoom-1", steps=4, runs=tmp_path, quiet=True, log_every=2, plot_every=0,
        env_steps=400, components=2, batch_size=16, hidden=[8],
    )  # fmt: skip
    assert allo.metrics["step"][-1] == 4


def test_an_api_run_is_one_that_the_commands_take(stopped_run):
    run, _ = stopped_run
    assert (run.folder / "config.toml").exists()
    assert isinstance(run, api.Run)
    assert repr(run) == f"Run({str(run.folder)!r})"
