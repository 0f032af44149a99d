"""What updates do not change is computed for all of them before the first, and stays right."""

import pytest
import torch
import torch.nn.functional as F
from support.fused import TOLERANCES, Pair, batches, eager, q_loss

import loopless as ll
from loopless.fused import early

DTYPE = torch.float64


def double_loss(net, batch, target):
    """A loss that reads the trained network on the next observations too."""
    q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
    with torch.no_grad():
        choice = net(batch["next_obs"]).argmax(1, keepdim=True)
        best = target(batch["next_obs"]).gather(1, choice).squeeze(1) + net(batch["next_obs"])[:, 0]
    return F.smooth_l1_loss(q, batch["reward"] + 0.9 * best)


def compare_with_eager(loss, updates=7):
    pair = Pair(lambda p: torch.optim.Adam(p, lr=1e-2), DTYPE)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    data = batches(updates, DTYPE, seed=1)
    step.many(data, pair.target)
    eager(loss, pair.plain, pair.optimizers[1], data, pair.target, updates=updates)
    pair.assert_equal(TOLERANCES[DTYPE])


@pytest.mark.parametrize("at_once", [0, 3, 7])
def test_updates_are_the_same_however_many_are_computed_at_once(at_once, monkeypatch):
    chunks = []

    def chunk(graph, nodes, updates):
        chunks.append(len(nodes))
        return at_once

    monkeypatch.setattr(early, "chunk", chunk)
    compare_with_eager(double_loss)
    assert chunks == [1]  # the target's outputs alone: the trained network's are not known before


def test_few_updates_at_once_keep_large_arrays_small(monkeypatch):
    sizes = []
    chunk = early.chunk
    monkeypatch.setattr(early, "chunk", lambda *a: sizes.append(chunk(*a)) or sizes[-1])
    compare_with_eager(q_loss)
    monkeypatch.setattr(early, "MOST_BYTES", 1)
    compare_with_eager(q_loss)
    assert sizes == [7, 0]


def test_a_parameter_group_that_is_replaced_counts_at_once():
    pair = Pair(lambda p: torch.optim.Adam(p, lr=1e-2), DTYPE)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0], check="never")
    for seed, rate in ((1, None), (2, 0.5)):
        data = batches(2, DTYPE, seed=seed)
        for optimizer in pair.optimizers:
            if rate is not None:
                optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": rate}
        step.many(data, pair.target)
        eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=2)
        pair.assert_equal(TOLERANCES[DTYPE])
