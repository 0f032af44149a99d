"""How many files of ours a warm call enters: the walks that a reader has to follow stay short."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import loopless as ll

SOURCE = Path(ll.__file__).parent


def files_entered(call: Callable[[], object]) -> set[str]:
    """Call once to warm up, once more under a profiler; return our files that were entered."""
    call()
    files = set()

    def note(frame, event, _):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {str(Path(f).relative_to(SOURCE)) for f in files if Path(f).is_relative_to(SOURCE)}


def test_a_call_that_enters_a_file_is_noticed():
    assert files_entered(lambda: None) == set()
    assert files_entered(lambda: ll.ReplayBuffer(2, {"x": ((), "int8")}).capacity) > {
        "replay/host/ring.py",
        "replay/host/packed.py",
    }


@pytest.mark.parametrize(("requires_grad", "most"), [(False, 5), (True, 7)])
def test_gae_of_tensors(requires_grad, most):
    arrays = {name: torch.rand(5, 8) for name in ("rewards", "values", "next_values")}
    arrays["values"].requires_grad_(requires_grad)
    arrays |= {name: torch.rand(5, 8) < 0.2 for name in ("terminated", "truncated")}
    files = files_entered(lambda: ll.gae(**arrays, gamma=0.99, lambda_=0.95))
    assert {"arrays/dispatch.py", "kernels/returns.py"} < files
    assert len(files) <= most, files


def test_sampling_episodes():
    fields = {"obs": {"near": ((2,), np.float32), "image": ((300,), np.uint8)}}
    buffer = ll.EpisodicReplayBuffer(100, fields, terminals="single")
    obs = {"near": np.zeros((50, 2), np.float32), "image": np.zeros((50, 300), np.uint8)}
    buffer.add_episode(obs=obs, terminals=np.arange(50) % 10 == 9)
    buffer.set_step_weights(np.arange(50))
    files = files_entered(lambda: buffer.sample(32, discount=0.9))
    assert "replay/host/episodic/draws.py" in files
    assert len(files) <= 8, files


def test_avatarl_with_a_gradient():
    torch.manual_seed(0)
    student, critic = torch.randn(6, 12, requires_grad=True), torch.randn(6, 12)
    gold = torch.arange(6)
    files = files_entered(lambda: ll.avatarl_loss(student, critic, gold, top_k=3)[0].backward())
    assert "kernels/avatarl/compiled.py" in files
    assert len(files) <= 8, files


class TracedError(BaseException):
    """Ends a run as soon as its loss is traced; no handler of ours may take it for a failure."""


@pytest.mark.slow
def test_tracing_the_loss_of_a_training_run(monkeypatch, tmp_path):
    """How many files a reader passes from the command line to `q_loss`."""
    from loopless.cli import main
    from loopless.runs import session
    from loopless.train.dqn import algorithm

    def trace(*_, **__):
        raise TracedError

    monkeypatch.setattr(algorithm, "q_loss", trace)
    monkeypatch.setattr(session, "Renderer", mock.MagicMock())
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    settings = {"runs": tmp_path, "steps": 20, "hidden": 4, "batch-size": 8, "learning-starts": 0}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with pytest.raises(TracedError) as traced:
        main(["train", "dqn", *words])
    files = {str(entry.path.relative_to(SOURCE)) for entry in traced.traceback if is_ours(entry)}
    assert {"cli.py", "train/dqn/compiled.py", "train/dqn/algorithm.py"} < files
    assert len(files) + 1 <= 12, files  # and the file of `q_loss` itself


def is_ours(entry) -> bool:
    return isinstance(entry.path, Path) and entry.path.is_relative_to(SOURCE)
