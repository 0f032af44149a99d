"""Known mistakes, made on purpose in a copy of the code: the comparison with eager notices each."""

import contextlib
import copy
import inspect
import textwrap

import pytest
import torch
import torch.nn.functional as F
from support.fused import Pair, batches, eager
from torch import nn

import loopless as ll
from loopless.fused import capture, optimizers, plan, program, step


def mutate(monkeypatch, home, name, *replacements):
    """Put a function in place of one of ours that differs from it in the given words."""
    owner, _, method = name.rpartition(".")
    holder = getattr(home, owner) if owner else home
    source = textwrap.dedent(inspect.getsource(getattr(holder, method)))
    for right, wrong in replacements:
        assert right in source, f"{name} has changed: {right!r} is gone"
        source = source.replace(right, wrong)
    namespace = dict(vars(home))
    exec(source, namespace)
    monkeypatch.setattr(holder, method, namespace[method])


DATA = batches(3, torch.float64)


def loss(net, batch):
    with torch.no_grad():
        goal = batch["reward"] + 0.9 * net["target"](batch["next_obs"]).squeeze(1)
        goal = goal + 0.5 * net["online"](batch["next_obs"]).squeeze(1)
    return F.mse_loss(net["online"](batch["obs"]).squeeze(1), goal)


def module():
    """An online net, a target that the same optimizer holds, and a layer that nobody uses."""
    torch.manual_seed(0)
    online = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    parts = {"online": online, "target": copy.deepcopy(online), "unused": nn.Linear(2, 2)}
    return nn.ModuleDict(parts).double()


def compare_with_eager():
    pair = Pair(lambda p: torch.optim.AdamW(p, lr=0.05, eps=1e-2, weight_decay=0.3), net=module())
    fused = ll.fuse(loss, pair.fused, pair.optimizers[0], max_gradient_norm=0.1, check="never")
    for rate in (0.05, 0.01):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0]["lr"] = rate
        fused.many(DATA)
        eager(loss, pair.plain, pair.optimizers[1], DATA, updates=3, max_norm=0.1)
    pair.assert_equal(1e-12)


def test_the_code_as_it_is_passes():
    compare_with_eager()


CLIP = "        vectors = [vector * factor.astype(vector.dtype) for vector in vectors]\n"
MOVE = "        new |= _move(mover, state, vector, table, rates)\n"
LATE = "        new |= {s: state[s] + factor * (new[s] - state[s]) for s in mover.weights}\n"

MUTANTS = {
    "epsilon inside the root": (
        optimizers,
        "_adam",
        ("xp.sqrt(square) / root + epsilon", "xp.sqrt(square + epsilon) / root"),
    ),
    "bias correction off by one": (optimizers, "Numbers.rows", ("before + 1", "before + 2")),
    "clip after the moments": (program, "_take", (CLIP, "        pass\n"), (MOVE, MOVE + LATE)),
    "clip without the small number": (program, "_take", (" + 1e-6", "")),
    "weight decay coupled": (
        optimizers,
        "settings",
        ('("decoupled" if decoupled else "coupled")', '"coupled"'),
    ),
    "rate frozen at the first call": (
        plan,
        "Plan.numbers",
        ('[group["lr"] for', '[self._settings[0] if self._settings else group["lr"] for'),
    ),
    "unused parameter decayed": (
        capture,
        "Loss.gradients",
        ("allow_unused=True", "allow_unused=True, materialize_grads=True"),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    mutate(monkeypatch, *MUTANTS[name])
    with pytest.raises(AssertionError):
        compare_with_eager()


def test_a_target_moved_by_the_gradient_is_caught(monkeypatch):
    """A tracer that overlooks `no_grad` sends gradients to the target, and through the goal."""
    right = capture.flatten

    def wrong(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(torch, "no_grad", contextlib.nullcontext)
            return right(*arguments)

    monkeypatch.setattr(capture, "flatten", wrong)
    with pytest.raises(AssertionError):
        compare_with_eager()


def test_frozen_randomness_is_caught(monkeypatch):
    def noisy(net, batch):
        return net["online"](batch["obs"]).mean() + torch.randn(())

    def draws_differ():
        net = module()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        fused = ll.fuse(noisy, net, optimizer, random=True, check="never")
        first, second = (fused.many(DATA) for _ in range(2))
        assert not torch.isin(first, second).any()

    draws_differ()
    mutate(monkeypatch, step, "Step._run", ("int(torch.randint(2**53, ()))", "0"))
    with pytest.raises(AssertionError):
        draws_differ()


def test_a_follower_that_drifts_is_caught(monkeypatch):
    def follows():
        net, target = nn.Linear(3, 1).double(), nn.Linear(3, 1).double()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        expected = 0.5 * target.weight.detach() + 0.5 * net.weight.detach()
        follow = [(target, net, 0.5)]
        fused = ll.fuse(lambda n, b: n(b).mean(), net, optimizer, follow=follow, check="never")
        fused(DATA["obs"][0])
        torch.testing.assert_close(target.weight.detach(), expected)

    follows()
    mutate(monkeypatch, program, "_follow", ("(1 - follower.tau) * ", ""))
    with pytest.raises(AssertionError):
        follows()
