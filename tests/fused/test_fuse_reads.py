"""What a loss reads besides its arguments is read anew at each call."""

import copy
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.fused import Pair, batches, eager, first, memory, network
from torch import nn

import loopless as ll
from loopless.fused.step import MANY_SHAPES

ONE = first(batches(1, torch.float64))
DATA = batches(2, torch.float64)
settings = types.SimpleNamespace(gamma=0.9)
scale = 1.0


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def assert_same(step, loss, pair, *others):
    """Make two fused and two eager updates, and compare."""
    values = step.many(DATA, *others)
    expected, _ = eager(loss, pair.plain, pair.optimizers[1], DATA, *others, updates=2)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    pair.assert_equal(1e-12)


def test_a_target_in_a_closure_that_is_written_and_replaced():
    target = network(torch.float64, seed=3)

    def loss(net, batch):
        with torch.no_grad():
            goal = target(batch["next_obs"])
        return F.mse_loss(net(batch["obs"]), goal)

    pair = Pair(sgd, torch.float64)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, loss, pair)
    with torch.no_grad():
        target[0].weight.add_(1.0)
    assert_same(step, loss, pair)
    target[0].bias.data = torch.randn(8, dtype=torch.float64)
    assert_same(step, loss, pair)
    target = network(torch.float64, seed=4)
    assert_same(step, loss, pair)
    target[2] = nn.Linear(8, 2).double()
    assert_same(step, loss, pair)
    assert len(step.programs) == 1  # none of this compiles anything


def test_a_target_that_is_passed_may_be_another_one():
    def loss(net, batch, target):
        return F.mse_loss(net(batch["obs"]), target(batch["next_obs"]).detach())

    pair = Pair(sgd, torch.float64)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    for seed in (1, 2):
        assert_same(step, loss, pair, network(torch.float64, seed=seed))
    assert len(step.programs) == 1


def test_a_target_formed_from_the_trained_net_gets_no_gradient():
    def loss(net, batch):
        with torch.no_grad():
            goal = net(batch["next_obs"])
        return F.mse_loss(net(batch["obs"]), goal) + net[0].weight.data.sum() * net[0].bias.sum()

    pair = Pair(sgd, torch.float64)
    assert_same(ll.fuse(loss, pair.fused, pair.optimizers[0]), loss, pair)


class Agent:
    """Reads its coefficient, its tensor, a property and a table from `self`."""

    def __init__(self):
        self.coefficient, self.weights = 0.5, torch.tensor([1.0, 2.0], dtype=torch.float64)
        self.options, self.steps = {"shift": 0.1}, 0
        self.t = 0

    @property
    def decay(self):
        return 1.0 / (1 + self.steps)

    def loss(self, net, batch):
        shift = self.options["shift"]
        return (
            self.coefficient
            * (net(batch["obs"]).t().t() * self.weights - shift).pow(2).mean()
            * self.decay
            * settings.gamma
            * scale
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda agent: setattr(agent, "coefficient", 0.25),
        lambda agent: setattr(agent, "steps", 3),
        lambda agent: agent.options.update(shift=-0.3),
        lambda agent: setattr(settings, "gamma", 0.5),
        lambda agent: globals().update(scale=2.0),
    ],
    ids=["attribute", "property", "dict", "namespace", "global"],
)
def test_numbers_are_compared(change):
    agent, pair = Agent(), Pair(sgd, torch.float64)
    step = ll.fuse(agent.loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, agent.loss, pair)
    change(agent)
    assert_same(step, agent.loss, pair)
    assert len(step.programs) == 2


def test_what_is_no_number_of_the_loss_compiles_nothing():
    agent, pair = Agent(), Pair(sgd, torch.float64)
    step = ll.fuse(agent.loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, agent.loss, pair)
    agent.t, agent.weights = 7, torch.tensor([3.0, -1.0], dtype=torch.float64)
    assert_same(step, agent.loss, pair)
    agent.weights.mul_(2)
    assert_same(step, agent.loss, pair)
    assert len(step.programs) == 1


def test_a_number_that_keeps_changing_is_told_from_the_third_time_on():
    clip = 0.1

    def loss(net, batch):
        return net(batch["obs"]).clamp(-clip, clip).mean()

    pair = Pair(sgd)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    one = first(batches(1))
    for clip in (0.1, 0.2, 0.3):  # noqa: B007
        step(one)
    clip = 0.4
    with pytest.warns(UserWarning, match=r"clip has changed 3 times, now to 0\.4.*as a tensor"):
        step(one)
    clip = 0.2  # compiled before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(one)
    assert len(step.programs) == 4


@pytest.mark.slow
def test_batches_of_ever_new_shapes_are_told_once():
    pair = Pair(sgd)
    step = ll.fuse(lambda net, batch: net(batch["obs"]).mean(), pair.fused, pair.optimizers[0])
    obs = first(batches(1))["obs"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in range(1, MANY_SHAPES):
            step({"obs": obs[:rows]})
    with pytest.warns(UserWarning, match="6th shape of a batch.*pad batches to a few lengths"):
        step({"obs": obs[:MANY_SHAPES]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step({"obs": obs[: MANY_SHAPES + 1]})


def test_numbers_in_the_batch_and_tensors_beside_it_are_arguments():
    def loss(net, batch, clip):
        return (net(batch["obs"]) * batch["weight"]).clamp(max=clip).mean()

    pair = Pair(sgd)
    obs = batches(1)["obs"][0]
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    for weight, clip in ((1.0, 0.5), (2.0, 0.1)):
        value = step({"obs": obs, "weight": weight}, torch.tensor(clip))
        expected = loss(pair.plain, {"obs": obs, "weight": weight}, torch.tensor(clip))
        torch.testing.assert_close(value, expected.detach(), rtol=0, atol=1e-6)
        eager(
            lambda n, b: loss(n, {"obs": obs, "weight": weight}, torch.tensor(clip)),  # noqa: B023
            pair.plain,
            pair.optimizers[1],
            {"obs": obs[None]},
            updates=1,
        )
    assert len(step.programs) == 1


def test_training_and_evaluation_are_two_programs():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    pair = Pair(sgd, net=net)

    def loss(net, batch):
        return net(batch["obs"]).pow(2).mean()

    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, loss, pair)
    pair.fused.eval(), pair.plain.eval()
    assert_same(step, loss, pair)
    assert len(step.programs) == 2


def test_states_that_are_loaded_between_calls_count():
    pair = Pair(lambda p: torch.optim.Adam(p, lr=0.01), torch.float64)

    def loss(net, batch):
        return F.mse_loss(net(batch["obs"])[:, 0], batch["reward"])

    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    before = copy.deepcopy([pair.fused.state_dict(), pair.optimizers[0].state_dict()])
    assert_same(step, loss, pair)
    after = copy.deepcopy([pair.fused.state_dict(), pair.optimizers[0].state_dict()])
    assert_same(step, loss, pair)
    for net, optimizer in zip((pair.fused, pair.plain), pair.optimizers, strict=True):
        net.load_state_dict(copy.deepcopy(after[0]))
        optimizer.load_state_dict(copy.deepcopy(after[1]))
    assert_same(step, loss, pair)
    for net, optimizer in zip((pair.fused, pair.plain), pair.optimizers, strict=True):
        net.load_state_dict(copy.deepcopy(before[0]))
        optimizer.load_state_dict(copy.deepcopy(before[1]))  # no moments again
    assert_same(step, loss, pair)
    for net in (pair.fused, pair.plain):
        net[0].bias.requires_grad_(False)
    assert_same(step, loss, pair)
    for net in (pair.fused, pair.plain):
        net[0].bias.requires_grad_(True)
    assert_same(step, loss, pair)  # counts of steps differ now
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in pair.optimizers]
    assert_same(step, loss, pair)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scheduler in schedulers:
            scheduler.step()
    assert_same(step, loss, pair)


def test_batches_of_any_layout():
    def loss(net, batch):
        obs, (flags, bytes_, weights) = batch
        return (net(obs.float()) * flags[:, None] * bytes_[:, None] * weights[:, None]).mean()

    rng = np.random.default_rng(0)
    obs = np.asfortranarray(rng.standard_normal((6, 3)))
    obs.flags.writeable = False
    half = torch.rand(6, dtype=torch.float16)
    batch = (obs, [rng.random(6) < 0.5, torch.arange(6, dtype=torch.uint8), half])
    pair = Pair(sgd)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0])
    value = step(batch)
    tensors = (torch.tensor(obs), [torch.tensor(batch[1][0]), batch[1][1], half])
    expected = loss(pair.plain, tensors).detach()
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)
    value += 1  # writable, and nobody else's
    step((obs[::-1], batch[1]))


def test_large_batches_of_any_layout_and_extras_that_are_part_of_them():
    def loss(net, batch):
        return F.mse_loss(net(batch["obs"])[:, 0], batch["reward"]), {"obs": batch["obs"]}

    rng = np.random.default_rng(0)
    obs = rng.standard_normal((300, 64, 2)).T  # larger than what is packed with the parameters
    obs.flags.writeable = False
    reward = rng.standard_normal((2, 128))[:, ::2]
    pair = Pair(sgd, net=nn.Linear(300, 2).double())
    values, extras = ll.fuse(loss, pair.fused, pair.optimizers[0]).many(
        {"obs": obs, "reward": reward}
    )
    data = {"obs": torch.tensor(obs), "reward": torch.tensor(reward)}
    expected, _ = eager(loss, pair.plain, pair.optimizers[1], data, updates=2)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    pair.assert_equal(1e-12)
    assert torch.equal(extras["obs"], data["obs"])
    assert not extras["obs"].requires_grad
    extras["obs"].zero_()  # writable, and nobody else's
    assert torch.equal(torch.tensor(obs), data["obs"])


def test_the_tensors_of_a_distribution_are_read_anew():
    prior = torch.distributions.Normal(torch.zeros(2).double(), torch.ones(2).double())

    def loss(net, batch):
        return -prior.log_prob(net(batch["obs"])).mean()

    pair = Pair(sgd, torch.float64)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, loss, pair)
    prior.loc = torch.full((2,), 3.0).double()
    assert_same(step, loss, pair)


def test_a_weight_that_is_transposed_on_its_memory():
    def loss(net, batch):
        return F.mse_loss(net(batch["obs"]), batch["obs"])

    pair = Pair(sgd, net=nn.Linear(3, 3).double())
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, loss, pair)
    for net in (pair.fused, pair.plain):
        net.weight.data = net.weight.data.t()
    assert_same(step, loss, pair)


class Surrogate(torch.autograd.Function):
    """A step, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * gradient * (x.abs() < 1)


def custom_gradient(net, batch):
    return (Surrogate.apply(net(batch["obs"])) * batch["reward"][:, None]).mean()


def hooked_inside(net, batch):
    hidden = net[0](batch["obs"])
    hidden.register_hook(lambda gradient: 2 * gradient)
    return net[2](hidden).pow(2).mean()


def by_order(net, batch):
    fields = [batch[name].sum() for name in batch]
    return sum(place * field for place, field in enumerate(fields)) * net(batch["obs"]).mean()


@pytest.mark.parametrize("loss", [custom_gradient, hooked_inside, by_order])
def test_what_pytorch_says_of_gradients_and_python_of_dicts_holds(loss):
    pair = Pair(sgd, torch.float64)
    assert_same(ll.fuse(loss, pair.fused, pair.optimizers[0], check="never"), loss, pair)


def test_an_exception_of_a_later_call_is_the_users_and_nothing_moves():
    limit = 10

    def loss(net, batch):
        if len(batch["obs"]) > limit:
            raise KeyError("too many rows")
        return net(batch["obs"]).mean()

    pair = Pair(sgd, torch.float64)
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    assert_same(step, loss, pair)
    limit = 1
    before = memory(pair.fused, pair.optimizers[0])
    with pytest.raises(KeyError, match="too many rows"):
        step.many(DATA)
    assert memory(pair.fused, pair.optimizers[0]) == before
    assert step.updates == 2
    limit = 10
    assert_same(step, loss, pair)
    assert len(step.programs) == 1
