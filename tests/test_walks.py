"""Calls that users make pass few files of ours: a reader can follow them."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import loopless as ll

PACKAGE = str(Path(ll.__file__).parent)


def files_entered(call: Callable[[], object]) -> list[str]:
    """Return the files of ours in which a Python function runs during a warm `call`."""
    call()  # compiles, imports and fills caches
    files = set()

    def watch(frame, event, argument):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(str(Path(x).relative_to(PACKAGE)) for x in files if x.startswith(PACKAGE))


def rollout(requires_grad: bool) -> dict[str, torch.Tensor]:
    floats = {name: torch.rand(5, 8) for name in ("rewards", "values", "next_values")}
    floats["values"].requires_grad_(requires_grad)
    return floats | {name: torch.rand(5, 8) < 0.2 for name in ("terminated", "truncated")}


def test_files_entered_lists_files_of_ours_alone():
    assert files_entered(lambda: np.linalg.norm(np.ones(3))) == []
    x = np.ones((3, 2))
    assert files_entered(lambda: ll.normalize(x)) == [
        "arrays/checks.py",
        "arrays/dispatch.py",
        "arrays/library.py",
        "kernels/normalize.py",
    ]


def test_gae_without_gradients():
    arrays = rollout(requires_grad=False)
    files = files_entered(lambda: ll.gae(**arrays, gamma=0.99, lambda_=0.95))
    assert len(files) <= 5, files


def test_gae_with_gradients():
    arrays = rollout(requires_grad=True)
    files = files_entered(lambda: ll.gae(**arrays, gamma=0.99, lambda_=0.95))
    assert len(files) <= 7, files
