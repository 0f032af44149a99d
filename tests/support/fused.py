"""A small Q-learning problem for `fuse`, and the plain eager loop that it is compared with."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def network(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def batches(updates, dtype=torch.float32, rows=6, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(updates, rows, *shape, generator=generator, dtype=torch.float64).to(
            dtype
        )

    return {
        "obs": normal(3),
        "action": torch.randint(0, 2, (updates, rows), generator=generator),
        "reward": normal(),
        "next_obs": normal(3),
        "done": torch.rand(updates, rows, generator=generator) < 0.2,
    }


def first(batch, update=0):
    return {name: values[update] for name, values in batch.items()}


def q_loss(net, batch, target):
    q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
    with torch.no_grad():
        best = target(batch["next_obs"]).max(1).values
    goal = batch["reward"] + 0.9 * torch.where(batch["done"], 0.0, best)
    return F.smooth_l1_loss(q, goal), {"td": q.detach() - goal}


def eager(loss, net, optimizer, batch, *others, updates, max_norm=None):
    """Make updates as people write them; return losses and extras, stacked."""
    values, extras = [], []
    for update in range(updates):
        optimizer.zero_grad()
        result = loss(net, first(batch, update), *others)
        value, extra = result if isinstance(result, tuple) else (result, {})
        value.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        optimizer.step()
        values.append(value.detach())
        extras.append(extra)
    optimizer.zero_grad()
    stacked = {name: torch.stack([extra[name] for extra in extras]) for name in extras[0]}
    return torch.stack(values), stacked


class Pair:
    """Two copies of a module with optimizers of their own: one is fused, one goes the eager way."""

    def __init__(self, make, dtype=torch.float32, net=None):
        self.fused = network(dtype) if net is None else net
        self.plain = copy.deepcopy(self.fused)
        self.target = network(next(self.fused.parameters()).dtype, seed=5)
        self.optimizers = make(self.fused.parameters()), make(self.plain.parameters())

    def assert_equal(self, tolerance):
        """Compare parameters, buffers, and the optimizers' states: keys, order, dtypes, values."""
        assert_states_equal(self.fused, self.plain, tolerance)
        one, two = (optimizer.state_dict()["state"] for optimizer in self.optimizers)
        assert list(one) == list(two)
        for place, state in two.items():
            assert list(one[place]) == list(state)
            for name, tensor in state.items():
                torch.testing.assert_close(one[place][name], tensor, rtol=0, atol=tolerance)
        assert all(parameter.grad is None for parameter in self.fused.parameters())


def assert_states_equal(one, two, tolerance):
    for name, tensor in two.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], tensor, rtol=0, atol=tolerance, msg=name)


TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}


def memory(*things):
    """Return the bytes of modules' and optimizers' tensors: what a refusal must not move."""
    found = []
    for thing in things:
        state = thing.state_dict()
        if "param_groups" in state:
            groups = [repr(group) for group in state["param_groups"]]
            found.append(groups)
            state = {
                f"{place}/{name}": tensor
                for place, entries in state["state"].items()
                for name, tensor in entries.items()
            }
        found.append(
            {name: bytes(tensor.reshape(-1).view(torch.uint8)) for name, tensor in state.items()}
        )
    return found
