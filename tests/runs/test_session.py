"""The loop around a trainer, here one of a few lines: what is written when, and how it ends."""

import json
import os
import resource
import signal
import time
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.runs import session, signals
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import BadRun, EnvFailed, Interrupted, NonFinite, WriteFailed
from loopless.runs.folder import RunFolder
from loopless.runs.pictures import snapshots


@dataclass(frozen=True)
class Settings:
    steps: int = 100
    rate: float = 1.0
    eval_every: int = 20
    checkpoint_every: int = 30
    plot_every: int = 50
    log_every: int = 10
    on_nan: Literal["stop", "skip"] = "stop"
    profile: bool = False
    tensorboard: bool = False


DEFAULT = Settings()


class Walk:
    """A trainer: its weights walk, ten steps a chunk, and its score is what `scores` says."""

    def __init__(self, config, scores=None, at=None):
        self.config, self.scores, self.at = config, scores or {}, at or {}
        self.step, self.total, self.closed, self.bad = 0, config.steps, 0, None
        self.weights, self.moments = np.zeros(3), np.zeros(3)

    def advance(self, clock):
        if act := self.at.get(self.step):
            act(self)
        with clock("learn"):
            for step in range(self.step, self.step + 10):
                change = np.random.default_rng(step).normal(size=3)
                self.moments = 0.9 * self.moments + change
                self.weights = self.weights + self.config.rate * self.moments
        self.step += 10
        return {"return_mean": self.score(), "loss": float(self.step)}

    def score(self):
        return self.scores.get(self.step, float(self.step))

    def evaluate(self):
        return {"eval_return": self.score(), "eval_episodes": 1}

    def failure(self):
        return self.bad

    def arrays(self):
        return {"weights/w": self.weights, "moments": self.moments, "step": np.int64(self.step)}

    def restore(self, checkpoint):
        self.weights, self.moments = checkpoint.arrays["weights/w"], checkpoint.arrays["moments"]
        self.step = int(checkpoint.arrays["step"])
        return "the weather"

    def close(self):
        self.closed += 1


class Pictures:
    """In the renderer's place: when something was asked for."""

    def __init__(self, folder, *, tensorboard, note):
        self.steps = Pictures.asked = []

    def request(self):
        self.steps.append(Pictures.trainer.step)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.request()  # the renderer draws a last time


@pytest.fixture(autouse=True)
def pictures(monkeypatch):
    monkeypatch.setattr(session, "Renderer", Pictures)
    return Pictures


def train(root, config=DEFAULT, found=None, name="mine", **options):
    """A session; the trainer, and what it raised."""
    trainer = Pictures.trainer = Walk(config, **options)
    error = None
    made = RunFolder.open(root / name, lock=True) if found else None
    with made or RunFolder.create(root, name, "walk", config) as run:
        try:
            session.train(trainer, run, config, found)
        except Exception as raised:
            error = raised
    assert trainer.closed == 1
    return trainer, error


def resume(root, config=DEFAULT, name="mine", **options):
    return train(root, config, Checkpoints(root / name).load(), name, **options)


def rows(root, kind):
    lines = (root / "mine" / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def steps_of(root, kind):
    return [row["step"] for row in rows(root, kind)]


def events(root):
    return [(row["step"], row["event"]) for row in rows(root, "event")]


def full_and_weights(root):
    """Steps of the checkpoints with their whole state, and of those with weights alone."""
    names = Checkpoints(root / "mine").names()[::-1]
    full = [(root / "mine" / "checkpoints" / name / "state.safetensors").exists() for name in names]
    steps = [int(name[5:]) for name in names]
    return (
        [step for step, whole in zip(steps, full, strict=True) if whole],
        [step for step, whole in zip(steps, full, strict=True) if not whole],
    )


# --- what happens when ---------------------------------------------------------------------------


def test_rows_evaluations_checkpoints_and_pictures_come_when_they_are_due(tmp_path):
    trainer, error = train(tmp_path)
    assert error is None
    assert steps_of(tmp_path, "train") == list(range(10, 101, 10))
    assert steps_of(tmp_path, "eval") == [20, 40, 60, 80, 100]
    assert full_and_weights(tmp_path)[0] == [90, 100]  # of 30, 60, 90 and the last, the newest two
    assert trainer.step == 100
    assert Pictures.asked == [50, 100, 100]
    assert events(tmp_path) == [(0, "start"), (100, "end")]


def test_snapshots_are_taken_with_the_pictures_and_again_after_a_resume(tmp_path, monkeypatch):
    def snapshot(self):
        return {"weights": self.weights, "step": np.int64(self.step)}

    def steps():
        return [int(found["step"]) for found in snapshots.history(tmp_path / "mine")]

    monkeypatch.setattr(Walk, "snapshot", snapshot, raising=False)
    train(tmp_path)
    assert steps() == [0, 50, 100]
    resume(tmp_path, replace(DEFAULT, steps=130, plot_every=110))
    assert steps() == [0, 50, 100, 110, 130]


def test_the_best_weights_are_by_the_metric_that_a_trainer_names(tmp_path, monkeypatch):
    monkeypatch.setattr(Walk, "judged_by", "loss", raising=False)
    train(tmp_path, replace(DEFAULT, eval_every=0), scores={20: 1e6})
    assert Checkpoints(tmp_path / "mine").best() == "step_000000000100"


@pytest.mark.parametrize(
    ("options", "evaluations", "full"),
    [
        ({"eval_every": 0, "checkpoint_every": 1000}, [], [100]),
        ({"eval_every": 25, "checkpoint_every": 45}, [30, 50, 80, 100], [90, 100]),
        ({"eval_every": 1000, "checkpoint_every": 5}, [100], [90, 100]),
        ({"steps": 15}, [20], [20]),
    ],
)
def test_other_cadences(tmp_path, options, evaluations, full):
    train(tmp_path, replace(Settings(), **options))
    assert steps_of(tmp_path, "eval") == evaluations
    assert full_and_weights(tmp_path)[0] == full


def test_without_plot_every_pictures_are_drawn_at_the_end_only(tmp_path):
    train(tmp_path, Settings(plot_every=0))
    assert Pictures.asked == [100]


def test_a_row_has_the_time_split_and_the_memory(tmp_path):
    train(tmp_path)
    row = rows(tmp_path, "train")[-1]
    assert row["memory_bytes"] > 1e6
    assert {"steps_per_second", "time_learn", "time_other", "return_mean", "loss"} <= row.keys()


def best_of(root):
    return (root / "mine" / "best").read_text().strip()


def test_the_best_weights_are_kept(tmp_path):
    scores = {20: 5.0, 40: 9.0, 60: 7.0, 80: 9.0, 100: 1.0}
    train(tmp_path, scores=scores)
    assert best_of(tmp_path) == "step_000000000040"
    found = Checkpoints(tmp_path / "mine").load("best", kind="weights")
    assert found.step == 40
    assert found.numbers["best"] == 9.0


def test_without_evaluations_the_return_decides(tmp_path):
    train(tmp_path, Settings(eval_every=0), scores={50: 1000.0})
    assert best_of(tmp_path) == "step_000000000050"


def test_with_several_seeds_their_mean_decides(tmp_path):
    scores = {20: np.array([0.0, 10.0]), 40: np.array([6.0, 6.0]), 60: np.array([20.0, -20.0])}
    train(tmp_path, Settings(steps=60), scores=scores)
    assert best_of(tmp_path) == "step_000000000040"


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    scores = dict.fromkeys(range(10, 101, 10), float("nan")) | {40: -3.0}
    train(tmp_path, scores=scores)
    assert best_of(tmp_path) == "step_000000000040"


# --- killed and resumed --------------------------------------------------------------------------


class Killed(BaseException):
    """The process dies: nothing of it goes on."""


def die(trainer):
    raise Killed


def checkpoint_files(root):
    folder = root / "mine" / "checkpoints"
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def undisturbed(tmp_path):
    root = tmp_path / "undisturbed"
    root.mkdir()
    train(root)
    return root


def test_killed_and_resumed_a_run_ends_as_if_left_alone(tmp_path, undisturbed):
    with pytest.raises(Killed):
        train(tmp_path, at={70: die})
    trainer, _ = resume(tmp_path)
    assert trainer.step == 100
    assert events(tmp_path) == [(0, "start"), (60, "resume"), (100, "end")]
    assert rows(tmp_path, "event")[1]["message"] == "the weather"
    assert steps_of(tmp_path, "train") == list(range(10, 101, 10))
    assert checkpoint_files(tmp_path) == checkpoint_files(undisturbed)


def test_killed_before_its_first_checkpoint_a_run_begins_again(tmp_path, undisturbed):
    config = Settings(eval_every=0, checkpoint_every=1000)
    with pytest.raises(Killed):
        train(tmp_path, config, at={50: die}, scores=dict.fromkeys(range(101), float("nan")))
    assert Checkpoints(tmp_path / "mine").names() == []
    with RunFolder.open(tmp_path / "mine", lock=True) as run:
        session.train(Walk(Settings()), run, Settings(), None)
    assert events(tmp_path) == [(0, "start"), (100, "end")]
    assert checkpoint_files(tmp_path) == checkpoint_files(undisturbed)


def test_the_best_score_is_remembered(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, at={60: die}, scores={20: 50.0, 40: 1.0, 60: 2.0})
    resume(tmp_path, scores={80: 49.0, 100: 3.0})
    assert best_of(tmp_path) == "step_000000000020"


def test_a_run_is_trained_on_when_it_gets_more_steps(tmp_path):
    train(tmp_path)
    trainer, error = resume(tmp_path, Settings(steps=150))
    assert (trainer.step, error) == (150, None)
    assert events(tmp_path)[-2:] == [(100, "resume"), (150, "end")]


def test_another_config_is_refused_with_what_differs_and_nothing_changes(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, at={70: die})
    log = (tmp_path / "mine" / "metrics.jsonl").read_bytes()
    files = checkpoint_files(tmp_path)
    _, error = resume(tmp_path, Settings(rate=2.0, steps=500, log_every=7))
    assert isinstance(error, BadRun)
    assert "rate: 1.0 → 2.0" in str(error)
    assert "steps" not in str(error)
    assert "step_000000000060" in str(error)
    assert (tmp_path / "mine" / "metrics.jsonl").read_bytes() == log
    assert checkpoint_files(tmp_path) == files


# --- signals -------------------------------------------------------------------------------------


def send(number):
    def act(trainer):
        os.kill(os.getpid(), number)

    return act


@pytest.fixture
def heard():
    """SIGINT is not ignored, as it is by whoever was started in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_the_run_goes_on_from_there(tmp_path, number, undisturbed):
    config = Settings(checkpoint_every=1000)
    trainer, error = train(tmp_path, config, at={40: send(number)})
    assert isinstance(error, Interrupted)
    assert error.exit_code == 75
    assert number.name in str(error)
    assert f"`loopless resume {tmp_path / 'mine'}`" in str(error)
    assert trainer.step < 100
    assert Checkpoints(tmp_path / "mine").load().step == trainer.step
    assert events(tmp_path)[-1] == (trainer.step, "interrupt")
    resume(tmp_path, config)
    last = {name: data for name, data in checkpoint_files(tmp_path).items() if "100/" in name}
    assert last.items() <= checkpoint_files(undisturbed).items()


# --- what goes wrong -----------------------------------------------------------------------------


def turn_bad(trainer):
    trainer.bad = "the loss was not finite at update 7"


def test_learning_that_stopped_leaves_a_bundle_and_the_good_checkpoints(tmp_path):
    trainer, error = train(tmp_path, at={70: turn_bad})
    assert isinstance(error, NonFinite)
    assert error.exit_code == 70
    assert "the loss was not finite at update 7" in str(error)
    assert "step_000000000060" in str(error)
    bundle = Checkpoints(tmp_path / "mine" / "crash").load()
    assert bundle.step == 80
    assert bundle.numbers["reason"] == trainer.bad
    np.testing.assert_array_equal(bundle.arrays["weights/w"], trainer.weights)
    assert Checkpoints(tmp_path / "mine").load().step == 60
    assert events(tmp_path)[-1] == (80, "nan")
    assert rows(tmp_path, "event")[-1]["message"] == trainer.bad
    again, _ = resume(tmp_path)
    assert again.step == 100


def fail(error):
    def act(trainer):
        raise error

    return act


def test_an_environment_that_fails_costs_nothing_of_what_was_learned(tmp_path):
    trainer, error = train(tmp_path, at={70: fail(EnvError("envs: gone."))})
    assert isinstance(error, EnvFailed)
    assert error.exit_code == 70
    assert str(error).startswith("envs: gone. Saved at step 70.")
    found = Checkpoints(tmp_path / "mine").load()
    np.testing.assert_array_equal(found.arrays["weights/w"], trainer.weights)
    assert events(tmp_path)[-1] == (70, "error")


def test_any_other_error_keeps_its_traceback_and_costs_nothing_either(tmp_path):
    _, error = train(tmp_path, at={70: fail(ZeroDivisionError("in your reward"))})
    assert isinstance(error, ZeroDivisionError)
    assert Checkpoints(tmp_path / "mine").load().step == 70


def lose(trainer):
    trainer.arrays = fail(RuntimeError("Array has been deleted."))
    trainer.arrays = trainer.arrays.__get__(trainer)
    raise ZeroDivisionError("in your reward")


def test_an_error_that_took_the_state_with_it_is_told_all_the_same(tmp_path):
    _, error = train(tmp_path, at={70: lose})
    assert isinstance(error, ZeroDivisionError)
    assert Checkpoints(tmp_path / "mine").load().step == 60


def test_a_disk_that_takes_no_more_ends_the_run_with_the_last_good_checkpoint_kept(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def forbid(trainer):
        """From here on the system lets no file grow, once the last checkpoint is there."""
        while full_and_weights(tmp_path)[0] != [30, 60]:
            time.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))

    try:
        _, error = train(tmp_path, at={70: forbid})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(error, WriteFailed)
    assert error.exit_code == 74
    assert "File too large" in str(error)
    found = Checkpoints(tmp_path / "mine").load()
    assert (found.step, found.skipped) == (60, [])
    trainer, error = resume(tmp_path)
    assert (trainer.step, error) == (100, None)
    assert steps_of(tmp_path, "train") == list(range(10, 101, 10))


def test_the_profile_is_a_table_of_where_the_time_went(tmp_path, capsys):
    train(tmp_path, Settings(profile=True, steps=30))
    said = capsys.readouterr().err
    for word in ("part", "calls", "total", "mean", "learn", "eval", "log"):
        assert word in said


def test_a_signal_ends_an_evaluation_which_the_resumed_run_begins_with(tmp_path, monkeypatch):
    def long_evaluation(self):
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0.001)
            signals.leave_if_requested()

    config = replace(DEFAULT, eval_every=DEFAULT.steps)
    with monkeypatch.context() as patch:
        patch.setattr(Walk, "evaluate", long_evaluation)
        _, error = train(tmp_path, config)
    assert isinstance(error, Interrupted)
    assert steps_of(tmp_path, "eval") == []
    trainer, error = resume(tmp_path, config)
    assert error is None
    assert steps_of(tmp_path, "eval") == [trainer.total]
    assert "evaluation_due" not in Checkpoints(tmp_path / "mine").load().numbers


def test_episodes_that_were_cut_are_reported_once(tmp_path, monkeypatch, capsys):
    cut = {"eval_return": 1.0, "eval_episodes": 4, "eval_cut": 3}
    monkeypatch.setattr(Walk, "evaluate", lambda self: cut)
    train(tmp_path, replace(DEFAULT, eval_every=1))
    assert capsys.readouterr().err.count("3 of 4 episodes had no end") == 1
