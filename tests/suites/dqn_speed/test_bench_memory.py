"""Memory of processes: what a probe says comes back, and a probe that fails is an error."""

import pytest

from loopless.runs.config import resolve
from loopless.train import commands
from loopless.train.dqn.config import DQN
from suites import processes
from suites.dqn_speed import suite


@pytest.mark.slow
def test_a_probe_measures_a_process_of_its_own():
    assert 20e6 < processes.probe(suite._bare_jax) < 2e9


@pytest.mark.slow
def test_a_probe_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="TypeError"):
        processes.probe(suite._bare_jax, "an argument too many")


def test_the_last_line_counts(monkeypatch):
    monkeypatch.setattr(processes, "run_child", lambda *_: (1.0, "noise\n12.5\n"))
    assert processes.probe(suite._bare_jax) == 12.5


@pytest.mark.parametrize("mode", ["hosted", "compiled"])
def test_a_run_is_told_what_the_others_are(monkeypatch, mode):
    seen = []
    monkeypatch.setattr(commands, "train", lambda words: seen.append(words) or 0)
    assert suite._train(mode, 1_500) > 20e6
    ((name, *flags),) = seen
    config, like = resolve(DQN, flags, "test"), suite.MEMORY_SLICE.config()
    assert (name, config.mode, config.steps, config.eval_every) == ("dqn", mode, 1_500, 0)
    same = ("hidden", "batch_size", "train_every", "buffer_size", "learning_starts", "loss")
    assert [getattr(config, x) for x in same] == [getattr(like, x) for x in same]


def test_a_run_that_fails_is_no_measurement(monkeypatch):
    monkeypatch.setattr(commands, "train", lambda words: 2)
    with pytest.raises(SystemExit):
        suite._train("hosted", 1_500)
