"""`loopless train` and `loopless resume` on a tiny run, and what they refuse."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_results import TINY, checkpoint_files, command, events, flags, rows

from loopless.envs.compiled.tables import Chain
from loopless.runs import config as configs
from loopless.runs.checkpoint import Checkpoints
from loopless.train import commands as training
from loopless.train.dqn.config import DQN

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("commands")]


def test_a_trained_run_has_everything(run):
    files = "best checkpoints config.toml latest lock metrics.jsonl plots run.json"
    assert sorted(path.name for path in run.iterdir()) == files.split()
    assert {"return.png", "loss.png", "td_error.png", "speed.png", "time.png"} <= {
        path.name for path in (run / "plots").iterdir()
    }
    assert json.loads((run / "run.json").read_text())["trainer"] == "dqn"
    config = configs.from_toml(DQN, (run / "config.toml").read_text())
    assert config == replace(TINY, runs=run.parent, run="mine")
    assert events(run) == [(0, "start"), (400, "end")]


def test_a_config_file_trains_the_same_again(run, tmp_path):
    file = run / "config.toml"
    assert command("train", "dqn", "--config", file, "--runs", tmp_path) == 0
    assert checkpoint_files(tmp_path / "mine") == checkpoint_files(run)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "CartPole-v2"], "Did you mean CartPole-v1"),
        (["--env", "Pendulum-v1"], "not Discrete"),
        (["--env", "nowhere:It-v0"], "importing nowhere failed"),
        (["--env", "Taxi-v4", "--mode", "compiled"], "no compiled environment"),
        (["--batch-size", "1000"], "more than buffer_size=96"),
        (["--learning-rate", "-1"], "learning_rate must be above 0; received -1.0"),
        (["--gama", "0.9"], "unknown flag --gama. Did you mean --gamma?"),
        (["--mode", "fast"], "--mode must be one of"),
        (["--config", "none.toml"], "there is no file none.toml"),
        (["--net", "conv"], "net=conv needs images"),
        (["--buffer-size", "2000000000"], "GB is free"),
        (["--env-kwargs.length"], "--env-kwargs.length must have a value, as in TOML"),
        (["--wrapper", "a:B"], "a:B: importing a failed"),
        (["--runs", "nowhere/at/all"], "there is no folder nowhere/at"),
        (["--run", "a/b"], "cannot be the name of a run"),
        (["--vectorization", "native"], "has no native vector environment"),
    ],
    ids=str,
)
def test_bad_input_is_one_message_with_code_2_and_leaves_nothing(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert command("train", "dqn", *flags(), *words) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_of_a_file_is_found_with_its_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text('env = "CartPole-v1"\nlearn_rate = 1.0\n')
    assert command("train", "dqn", "--config", "my.toml") == 2
    assert capsys.readouterr().err == (
        'config: unknown key "learn_rate" in my.toml, line 2. Did you mean "learning_rate"?\n'
    )
    assert [path.name for path in tmp_path.iterdir()] == ["my.toml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["train", "dqm"], "Did you mean dqn?"), (["train", "x"], "There are: dqn, ppo")],
)
def test_an_unknown_trainer_is_refused(words, message, capsys):
    assert command(*words) == 2
    assert message in capsys.readouterr().err


def test_a_name_that_is_taken_is_refused_and_the_run_is_left_alone(run, capsys):
    before = checkpoint_files(run)
    assert command("train", "dqn", *flags(runs=run.parent, run="mine")) == 2
    assert f"loopless resume {run}" in capsys.readouterr().err
    assert checkpoint_files(run) == before


def test_a_folder_that_cannot_be_written_to_has_code_74(tmp_path, monkeypatch, capsys):
    def refuse(path, *args, **options):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "runs").mkdir()
    monkeypatch.setattr("loopless.runs.folder.os.mkdir", refuse)
    code = command("train", "dqn", *flags(runs=tmp_path / "runs"))
    monkeypatch.undo()
    assert code == 74
    assert "Choose a folder that you may write to" in capsys.readouterr().err
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_reward_that_is_no_number_ends_a_hosted_run_with_code_70(tmp_path, capsys, monkeypatch):
    env_id = "support.scripted_envs:tests/Bad-v0"
    words = flags(env=env_id, mode="hosted", runs=tmp_path, run="bad", eval_every=0)
    from support import scripted_envs

    monkeypatch.setattr(scripted_envs.Bad.__init__, "__defaults__", (100, "reward", float("nan")))
    assert command("train", "dqn", *words) == 70
    said = capsys.readouterr().err
    assert "gave the reward nan at its step 100" in said
    assert "Saved at step" in said
    assert Checkpoints(tmp_path / "bad").load().step == 200


@pytest.mark.parametrize(
    ("how", "more", "starts", "says"),
    [
        ("raise", {}, "Traceback", "environment 0 raised OSError at its step 100"),
        ("sleep", {"step_timeout": 0.3}, "Traceback", "environment 0 did not answer within 0.3 s"),
        ("a flag as text", {}, "envs: ", "terminated = 'False' (str); True or False is expected"),
    ],
)
def test_an_environment_that_misbehaves_ends_a_run_with_code_70(
    tmp_path, capsys, monkeypatch, how, more, starts, says
):
    env_id = "support.scripted_envs:tests/Bad-v0"
    words = flags(env=env_id, mode="hosted", runs=tmp_path, run="bad", eval_every=0, **more)
    from support import scripted_envs

    monkeypatch.setattr(scripted_envs.Bad.__init__, "__defaults__", (100, how, 0.0))
    assert command("train", "dqn", *words) == 70
    printed = capsys.readouterr().err
    assert says in printed
    assert f"\n{starts}" in printed
    assert "session.py" not in printed
    assert Checkpoints(tmp_path / "bad").load().step == 200


def test_numbers_outside_the_observation_space_are_told_once(tmp_path, capsys, monkeypatch):
    env_id = "support.scripted_envs:tests/Bad-v0"
    words = flags(env=env_id, mode="hosted", runs=tmp_path, run="wide", eval_every=0)
    from support import scripted_envs

    monkeypatch.setattr(scripted_envs.Bad.__init__, "__defaults__", (3, "observation", 7.5))
    assert command("train", "dqn", *words) == 0
    printed = capsys.readouterr().err
    assert printed.count("environment 0 gave 7.5 as number 1 of its observation") == 1
    assert "2 numbers were outside the observation space" in printed
    log = (tmp_path / "wide" / "metrics.jsonl").read_text()
    assert log.count('"remark"') == 1


def test_a_reward_that_is_no_number_ends_a_compiled_run_with_code_70(tmp_path, capsys, monkeypatch):
    right = Chain.step

    def step(self, state, action, key):
        after, obs, reward, *ends = right(self, state, action, key)
        return (after, obs, jnp.where(state.steps == 19, jnp.nan, reward), *ends)

    monkeypatch.setattr(Chain, "step", step)
    words = flags(runs=tmp_path, run="bad", eval_every=0, checkpoint_every=40, steps=2_000)
    assert command("train", "dqn", *words) == 70
    said = capsys.readouterr().err
    assert "was not finite at update" in said
    assert "crash" in said
    bundle = Checkpoints(tmp_path / "bad" / "crash").load()
    assert np.isfinite(bundle.arrays["weights/online"]).all()
    assert bundle.arrays["carry/learner/failed"]
    capsys.readouterr()
    assert command("resume", tmp_path / "bad", "--on-nan", "skip", "--steps", 800) == 0
    last = rows(tmp_path / "bad")[-1]
    assert last["step"] == 800
    assert last["skipped_updates"] > 0


# --- resume --------------------------------------------------------------------------------------


def test_a_run_that_is_done_says_so_and_is_left_alone(copied, capsys):
    before = checkpoint_files(copied), (copied / "metrics.jsonl").read_bytes()
    assert command("resume", copied) == 0
    assert "is done, at step 400. --steps N trains on." in capsys.readouterr().out
    assert (checkpoint_files(copied), (copied / "metrics.jsonl").read_bytes()) == before


def test_fewer_steps_than_were_made_are_not_called_done(copied, capsys):
    before = (copied / "config.toml").read_bytes()
    assert command("resume", copied, "--steps", 80) == 0
    said = capsys.readouterr().out
    assert "is at step 400 already, past --steps 80, which counts from the run's start" in said
    assert (copied / "config.toml").read_bytes() == before


def test_more_steps_train_on_and_are_remembered(copied, capsys):
    assert command("resume", copied, "--steps", 480) == 0
    assert events(copied)[-2:] == [(400, "resume"), (480, "end")]
    assert configs.from_toml(DQN, (copied / "config.toml").read_text()).steps == 480
    capsys.readouterr()
    assert command("resume", copied) == 0
    assert "is done, at step 480" in capsys.readouterr().out


def test_a_damaged_checkpoint_is_skipped_with_the_reason(copied, run, capsys):
    newest = copied / "checkpoints" / "step_000000000400" / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8])
    assert command("resume", copied) == 0
    said = capsys.readouterr().err
    assert "Skipped step_000000000400: state.safetensors has" in said
    assert "from step_000000000320" in said
    for name, data in checkpoint_files(copied).items():
        assert data == checkpoint_files(run)[name]


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.toml", "gamma = 0.99", "gamma = 0.9", "gamma: 0.99 → 0.9"),
        (
            "config.toml",
            "gamma = 0.99",
            "gamma = 9.0",
            "gamma must be between 0 and 1; received 9.0",
        ),
        ("config.toml", "gamma = 0.99", "gama = 0.9", 'Did you mean "gamma"?'),
        ("config.toml", "    6,", "    7,", "hidden: [6] → [7]"),
        ("run.json", '"format": 1', '"format": 9', "made by a newer loopless"),
        ("run.json", '"dqn"', '"dqm"', "Did you mean dqn?"),
    ],
)
def test_another_config_or_format_is_refused_with_code_2(copied, capsys, file, old, new, message):
    edited(copied / file, old, new)
    (copied / "checkpoints" / "step_000000000400" / "state.safetensors").unlink()
    before = checkpoint_files(copied), (copied / "metrics.jsonl").read_bytes()
    assert command("resume", copied) == 2
    assert message in capsys.readouterr().err
    assert (checkpoint_files(copied), (copied / "metrics.jsonl").read_bytes()) == before


def test_a_checkpoint_of_a_newer_format_is_skipped(copied, capsys):
    manifest = copied / "checkpoints" / "step_000000000400" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    assert command("resume", copied) == 0
    assert "Skipped step_000000000400: it is of a newer format" in capsys.readouterr().err


def test_a_run_without_checkpoints_begins_again(copied, run, capsys):
    shutil.rmtree(copied / "checkpoints")
    assert command("resume", copied) == 0
    assert "from its start" in capsys.readouterr().err
    assert checkpoint_files(copied) == checkpoint_files(run)


def test_a_run_that_died_before_its_first_full_checkpoint_starts_anew(copied, run, capsys):
    best = Checkpoints(copied).load("best", kind="weights")
    shutil.rmtree(copied / "checkpoints")
    Checkpoints(copied).save(20, best.arrays, {}, kind="weights", best=True)
    assert command("resume", copied) == 0
    assert "which has no full checkpoint, from its start" in capsys.readouterr().err
    assert checkpoint_files(copied) == checkpoint_files(run)
    assert (copied / "best").read_bytes() == (run / "best").read_bytes()


@pytest.mark.parametrize("words", [["resume"], ["play"], ["plot"], ["export"]], ids=str)
def test_a_run_that_is_not_there_is_refused(run, words, capsys):
    assert command(*words, run.parent / "mina") == 2
    assert f"Did you mean {run}?" in capsys.readouterr().err


# --- what is not loaded --------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["train", "dqn", "--help"]])
def test_help_is_told_without_loading_an_array_library(words):
    code = (
        "import sys\n"
        "from loopless.cli import main\n"
        f"try:\n    main({words})\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(sorted({'numpy', 'numba', 'torch', 'jax', 'gymnasium', 'matplotlib'}\n"
        "    & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert ("--learning-rate" in done.stdout) == ("dqn" in words and "dqn" in words[1])


def test_bad_flags_are_told_without_loading_an_array_library():
    code = (
        "import sys\n"
        "from loopless.cli import main\n"
        "code = main(['train', 'dqn', '--gamma', '7'])\n"
        "print(code, sorted({'numpy', 'numba', 'torch', 'jax', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "2 []\n"
    assert done.stderr == "config: gamma must be between 0 and 1; received 7.0.\n"


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_training_one_agent_loads_neither_torch_nor_another_trainer(name):
    code = (
        "import sys\n"
        "from loopless.train import registry\n"
        f"registry.trainer({name!r})\n"
        f"import loopless.train.{name}.compiled, loopless.train.{name}.hosted\n"
        "files = {m.split('.')[2] for m in sys.modules if m.startswith('loopless.train.')}\n"
        f"others = tuple(registry.TRAINERS.keys() - {{{name!r}}})\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules,\n"
        "    [file for file in files if file.startswith(others)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False False []\n", "")


@pytest.mark.parametrize(("overlap", "threads"), [(True, "3"), (False, None)])
def test_an_overlapped_learner_leaves_a_core_to_its_caller(monkeypatch, overlap, threads):
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    monkeypatch.setattr(training, "cores", lambda: 4)
    monkeypatch.setattr(os, "environ", {"XLA_FLAGS": "--xla_cpu_use_onednn=false"})
    training.prepare(DQN(mode="hosted", overlap=overlap))
    training.prepare(DQN(mode="hosted", overlap=overlap))
    assert told == {"jax_cpu_enable_async_dispatch": overlap}
    assert os.environ.get("PJRT_NPROC") == threads
    words = os.environ["XLA_FLAGS"].split()
    assert words[0] == "--xla_cpu_use_onednn=false"
    ours = 3 if version("jaxlib").startswith(training.KNOWS_YNN) else 2
    assert len(words) == len({word.split("=")[0] for word in words}) == 1 + ours


@pytest.mark.parametrize(
    ("seeds", "devices", "threads"), [(8, "4", "1"), (6, "3", "1"), (2, "2", "2"), (1, None, None)]
)
def test_agents_have_cores_of_their_own(monkeypatch, seeds, devices, threads):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(training, "cores", lambda: 4)
    monkeypatch.setattr(os, "environ", {})
    training.prepare(DQN(mode="compiled", seeds=seeds))
    asked = f"--xla_force_host_platform_device_count={devices}"
    assert (asked in os.environ["XLA_FLAGS"].split()) == (devices is not None)
    assert os.environ.get("PJRT_NPROC") == threads


def test_what_the_user_told_jax_is_kept(monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    own = {"XLA_FLAGS": "--xla_backend_extra_options=some=1", "PJRT_NPROC": "7"}
    monkeypatch.setattr(os, "environ", dict(own))
    training.prepare(DQN(mode="hosted", overlap=True))
    assert os.environ["PJRT_NPROC"] == "7"
    assert os.environ["XLA_FLAGS"].startswith(own["XLA_FLAGS"])
    assert os.environ["XLA_FLAGS"].count("extra_options") == 1
    own = {"XLA_FLAGS": "--xla_force_host_platform_device_count=5", "PJRT_NPROC": "3"}
    monkeypatch.setattr(os, "environ", dict(own))
    training.prepare(DQN(mode="compiled", seeds=8))
    assert os.environ["PJRT_NPROC"] == "3"
    assert os.environ["XLA_FLAGS"].count("device_count") == 1
