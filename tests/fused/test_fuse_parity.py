"""Fused updates end where as many eager ones end: parameters, moments, counts, losses, extras."""

import copy
import io
import pickle

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from support.fused import TOLERANCES, Pair, batches, eager, first, network, q_loss
from torch import nn

import loopless as ll

ADAM = {"lr": 1e-2}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("updates", [1, 2, 7, 32])
def test_adam_with_clipping(dtype, updates):
    pair = Pair(lambda p: torch.optim.Adam(p, **ADAM), dtype)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0], max_gradient_norm=0.5, check="never")
    for seed in (1, 2):  # the second call finds moments, counts and no compilation to do
        data = batches(updates, dtype, seed=seed)
        values, extras = step.many(data, pair.target)
        expected, td = eager(
            q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=updates, max_norm=0.5
        )
        torch.testing.assert_close(values, expected, rtol=0, atol=TOLERANCES[dtype])
        torch.testing.assert_close(extras["td"], td["td"], rtol=0, atol=TOLERANCES[dtype])
        pair.assert_equal(TOLERANCES[dtype])
    assert [program.updates for program in step.programs] == [updates]
    assert step.programs[0].compiled
    assert step.updates == 2 * updates


OPTIMIZERS = {
    "adam decay": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, betas=(0.8, 0.9)),
    "adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, eps=1e-3),
    "adam maximize": lambda p: torch.optim.Adam(p, maximize=True, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.3),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.1),
    "rmsprop centered": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}


LATER = {"betas": (0.7, 0.95), "momentum": 0.6, "dampening": 0.2, "alpha": 0.9, "eps": 1e-4}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    pair = Pair(OPTIMIZERS[name], torch.float64)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    for seed in (1, 2):
        data = batches(3, torch.float64, seed=seed)
        step.many(data, pair.target)
        eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=3)
        pair.assert_equal(1e-12)
    # Rates, betas, epsilon and decay are arguments: another value compiles nothing.
    for optimizer in pair.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0.5
            group["weight_decay"] = group["weight_decay"] * 2
            group |= {name: value for name, value in LATER.items() if group.get(name)}
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=3)
    pair.assert_equal(1e-12)
    assert len(step.programs) == 1


def test_groups_and_counts_of_their_own():
    """Parameters whose counts of steps differ, in groups with their own rates and decay."""

    def make(parameters):
        one, two, three, four = parameters
        groups = [{"params": [one, two], "lr": 0.1}, {"params": [three, four], "weight_decay": 0.2}]
        return torch.optim.AdamW(groups, lr=0.01)

    pair = Pair(make, torch.float64)
    data = batches(3, torch.float64)
    for net, optimizer in zip((pair.fused, pair.plain), pair.optimizers, strict=True):
        net[0].bias.requires_grad_(False)
        eager(q_loss, net, optimizer, data, pair.target, updates=2)
        net[0].bias.requires_grad_(True)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=3)
    pair.assert_equal(1e-12)
    assert {float(state["step"]) for state in pair.optimizers[0].state.values()} == {3.0, 5.0}


@pytest.mark.parametrize("momenta", [(0.0, 0.9), (0.9, 0.0)], ids=["on", "off"])
def test_momentum_that_is_switched(momenta):
    pair = Pair(lambda p: torch.optim.SGD(p, lr=0.1), torch.float64)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0], check="never")
    data = batches(2, torch.float64)
    for momentum in momenta:
        for optimizer in pair.optimizers:
            optimizer.param_groups[0]["momentum"] = momentum
        step.many(data, pair.target)
        eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=2)
        pair.assert_equal(1e-12)


@pytest.mark.parametrize("option", ["foreach", "fused"])
def test_how_an_optimizer_is_carried_out_changes_nothing(option):
    pair = Pair(lambda p: torch.optim.Adam(p, **ADAM, **{option: True}), torch.float64)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    data = batches(2, torch.float64)
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=2)
    pair.assert_equal(1e-12)
    # A group that is added between two calls counts.
    for optimizer in pair.optimizers:
        last = optimizer.param_groups[0]["params"].pop()
        optimizer.add_param_group({"params": [last], "lr": 0.1})
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=2)
    pair.assert_equal(1e-12)


def test_minibatches_of_a_rollout():
    pair = Pair(lambda p: torch.optim.Adam(p, **ADAM), torch.float64)
    rollout = first(batches(1, torch.float64, rows=40))
    indices = torch.randperm(40).view(5, 8)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    values, _ = step.many(rollout, pair.target, indices=indices)
    stacked = {name: values[indices] for name, values in rollout.items()}
    expected, _ = eager(q_loss, pair.plain, pair.optimizers[1], stacked, pair.target, updates=5)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    pair.assert_equal(1e-12)


def test_rates_of_each_update():
    pair = Pair(lambda p: torch.optim.Adam(p, **ADAM), torch.float64)
    data, rates = batches(4, torch.float64), [0.1, 0.0, 0.05, 0.2]
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    step.many(data, pair.target, learning_rates=rates)
    for update, rate in enumerate(rates):
        pair.optimizers[1].param_groups[0]["lr"] = rate
        one = {name: values[update : update + 1] for name, values in data.items()}
        eager(q_loss, pair.plain, pair.optimizers[1], one, pair.target, updates=1)
    pair.assert_equal(1e-12)
    assert pair.optimizers[0].param_groups[0]["lr"] == 0.01


def test_rates_of_each_update_and_group():
    def make(parameters):
        parameters = list(parameters)
        return torch.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}], lr=0.1)

    pair = Pair(make, torch.float64)
    data, rates = batches(2, torch.float64), [[0.1, 0.0], [0.3, 0.2]]
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0], check="never")
    step.many(data, pair.target, learning_rates=rates)
    for update, both in enumerate(rates):
        for group, rate in zip(pair.optimizers[1].param_groups, both, strict=True):
            group["lr"] = rate
        one = {name: values[update : update + 1] for name, values in data.items()}
        eager(q_loss, pair.plain, pair.optimizers[1], one, pair.target, updates=1)
    pair.assert_equal(1e-12)


def ppo_loss(net, batch):
    logits, values = net(batch["obs"])
    chosen = torch.distributions.Categorical(logits=logits)
    ratio = (chosen.log_prob(batch["action"]) - batch["log_prob"]).exp()
    advantages = batch["advantage"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    return policy + 0.5 * F.mse_loss(values, batch["return"]) - 0.01 * chosen.entropy().mean()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU())
        self.policy, self.value = nn.Linear(8, 2), nn.Linear(8, 1)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, obs):
        hidden = self.trunk(obs) * self.frozen
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def test_ppo_with_unused_and_frozen_parameters():
    torch.manual_seed(0)
    pair = Pair(
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5), net=ActorCritic().double()
    )
    data = batches(4, torch.float64)
    data = {
        "obs": data["obs"],
        "action": data["action"],
        "log_prob": -0.7 + 0.1 * data["reward"],
        "advantage": data["reward"],
        "return": data["next_obs"][..., 0],
    }
    step = ll.fuse(ppo_loss, pair.fused, pair.optimizers[0], max_gradient_norm=0.5)
    step.many(data)
    eager(ppo_loss, pair.plain, pair.optimizers[1], data, updates=4, max_norm=0.5)
    pair.assert_equal(1e-11)


def test_buffers_of_batch_normalization_are_state():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()
    pair = Pair(lambda p: torch.optim.SGD(p, lr=0.1), net=net)
    data = batches(5, torch.float64)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=5)
    pair.assert_equal(1e-12)
    assert pair.fused[1].num_batches_tracked == 5
    pair.fused.eval(), pair.plain.eval()
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=5)
    pair.assert_equal(1e-12)


def test_tied_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    net[2].weight = net[0].weight
    pair = Pair(lambda p: torch.optim.Adam(p, **ADAM), net=net.double())
    data = batches(3, torch.float64)

    def loss(net, batch):
        return F.mse_loss(net(batch["obs"]), batch["next_obs"])

    ll.fuse(loss, pair.fused, pair.optimizers[0]).many(data)
    eager(loss, pair.plain, pair.optimizers[1], data, updates=3)
    pair.assert_equal(1e-12)
    assert pair.fused[2].weight is pair.fused[0].weight


HALVES = {
    "bfloat16 sgd": (torch.bfloat16, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5), 0.02),
    "bfloat16 adam": (torch.bfloat16, lambda p: torch.optim.Adam(p, **ADAM, eps=1e-3), 0.02),
    "float16 sgd": (torch.float16, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5), 2.5e-3),
}


@pytest.mark.parametrize("name", HALVES)
def test_half_precision(name):
    dtype, make, tolerance = HALVES[name]  # as many units in the last place of numbers near 1
    pair = Pair(make, dtype)
    data = batches(2, dtype)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0])
    step.many(data, pair.target)
    eager(q_loss, pair.plain, pair.optimizers[1], data, pair.target, updates=2)
    pair.assert_equal(tolerance)
    assert pair.fused[0].weight.dtype is dtype


def saved_sizes(net, optimizer):
    """Return how many bytes the ways of saving need."""
    sizes = {
        "pickle": len(pickle.dumps(net)),
        "safetensors": len(safetensors.torch.save(net.state_dict())),
        "storage": [p.untyped_storage().nbytes() for p in copy.deepcopy(net).parameters()],
    }
    for name, thing in {"module": net, "state": net.state_dict(), "optimizer": optimizer}.items():
        torch.save(thing, file := io.BytesIO())
        sizes[name] = file.tell()
    return sizes


def test_a_module_is_saved_and_copied_as_after_eager_updates():
    pair, data = Pair(lambda p: torch.optim.Adam(p, **ADAM)), batches(2)
    nets, optimizers = (pair.fused, pair.plain), pair.optimizers
    pointers = [p.data_ptr() for p in pair.fused.parameters()]
    versions = [p._version for p in pair.fused.parameters()]
    step = ll.fuse(q_loss, pair.fused, optimizers[0], check="never")
    step.many(data, pair.target)
    eager(q_loss, pair.plain, optimizers[1], data, pair.target, updates=2)
    assert [p.data_ptr() for p in pair.fused.parameters()] == pointers
    assert all(p._version > v for p, v in zip(pair.fused.parameters(), versions, strict=True))
    fused, plain = map(saved_sizes, nets, [o.state_dict() for o in optimizers])
    assert fused == plain
    copies = [
        copy.deepcopy(pair.fused),
        pickle.loads(pickle.dumps(pair.fused)),  # our own bytes
        network(),
    ]
    copies[2].load_state_dict(safetensors.torch.load(safetensors.torch.save(nets[0].state_dict())))
    before = copy.deepcopy(pair.fused.state_dict())
    step.many(data, pair.target)
    for other in copies:
        for name, tensor in other.state_dict().items():
            assert torch.equal(tensor, before[name])  # and they do not move with the module
