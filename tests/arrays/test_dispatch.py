"""Memory for results: used again when free, and never while anybody can see it."""

import threading
import time

import numpy as np
import pytest
import torch

from loopless.arrays import dispatch

FLOAT = np.dtype(np.float32)
SHAPE = (300, 300)


@pytest.fixture(autouse=True)
def _empty_pool(monkeypatch):
    monkeypatch.setattr(dispatch, "_blocks", [])


def address(x) -> int:
    return x.__array_interface__["data"][0]


def test_a_dropped_result_is_used_again():
    first = address(dispatch.empty(SHAPE, FLOAT))
    assert address(dispatch.empty(SHAPE, FLOAT)) == first


def test_the_block_used_last_comes_first():
    older, newer = dispatch.empty(SHAPE, FLOAT), dispatch.empty(SHAPE, FLOAT)
    want = address(newer)
    del older, newer
    assert address(dispatch.empty(SHAPE, FLOAT)) == want


@pytest.mark.parametrize(
    "hold",
    [
        lambda x: x,
        lambda x: x[3:5],
        lambda x: x.T,
        lambda x: torch.from_numpy(x)[1:],
        lambda x: memoryview(x),
    ],
    ids=["itself", "slice", "transpose", "tensor", "memoryview"],
)
def test_a_result_that_somebody_sees_is_left_alone(hold):
    first = dispatch.empty(SHAPE, FLOAT)
    where = address(first)
    held = hold(first)
    del first
    assert address(dispatch.empty(SHAPE, FLOAT)) != where
    del held
    both = dispatch.empty(SHAPE, FLOAT), dispatch.empty(SHAPE, FLOAT)
    assert where in {address(x) for x in both}


def test_small_and_huge_results_are_not_kept():
    dispatch.empty((4, 4), FLOAT)
    dispatch.empty((dispatch.BYTES,), FLOAT)
    assert dispatch._blocks == []


def test_what_is_kept_is_bounded():
    held = [dispatch.empty((1000 + k, 1000), FLOAT) for k in range(100)]
    assert len(dispatch._blocks) <= dispatch.BLOCKS
    assert sum(block.nbytes for block in dispatch._blocks) <= dispatch.BYTES
    assert len({address(x) for x in held}) == 100


def test_threads_never_share_a_block(monkeypatch):
    counted = dispatch._references

    def slow_references(blocks, place):
        count = counted(blocks, place)
        time.sleep(1e-4)  # lets another thread look at the same block before it is taken
        return count

    def work():
        for _ in range(50):
            x = dispatch.empty(SHAPE, FLOAT)
            mark = threading.get_ident() % 1000
            x[:] = mark
            if not (x == mark).all():
                clashes.append(mark)

    clashes: list[int] = []
    monkeypatch.setattr(dispatch, "_references", slow_references)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
