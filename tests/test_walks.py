"""How many files of ours a warm call enters: the walks that a reader has to follow stay short."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
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
