"""Several losses with followers: the same as TD3, SAC and their kin written out."""

import copy

import pytest
import torch
import torch.nn.functional as F
from support.fused import assert_states_equal, batches, first, memory
from torch import nn

import loopless as ll

pytestmark = pytest.mark.slow

GAMMA, TAU = 0.9, 0.1


class ActorCritic:
    """An actor, a critic, its target and a temperature, each with its optimizer."""

    def __init__(self):
        torch.manual_seed(0)
        self.actor = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()
        self.target = copy.deepcopy(self.critic)
        self.log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=0.01)
        self.critic_optimizer = torch.optim.AdamW(self.critic.parameters(), lr=0.02)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=0.1)

    def critic_loss(self, critic, batch):
        with torch.no_grad():
            action = self.actor(batch["next_obs"])
            best = self.target(torch.cat([batch["next_obs"], action], 1)).squeeze(1)
            goal = batch["reward"] + GAMMA * (best - self.log_alpha.exp())
        pair = torch.cat([batch["obs"], batch["reward"][:, None]], 1)
        return F.mse_loss(critic(pair).squeeze(1), goal), goal

    def actor_loss(self, actor, batch):
        pair = torch.cat([batch["obs"], actor(batch["obs"])], 1)
        return (
            self.log_alpha.detach().exp() * actor(batch["obs"]).pow(2).mean()
            - self.critic(pair).mean()
        )

    def alpha_loss(self, log_alpha, batch):
        return (log_alpha * (self.actor(batch["obs"]) - 0.3).detach()).mean()

    def stages(self):
        return [
            (self.critic_loss, self.critic, self.critic_optimizer),
            (self.actor_loss, self.actor, self.actor_optimizer),
            (self.alpha_loss, self.log_alpha, self.alpha_optimizer),
        ]

    def eager(self, data, updates, every, before=0):
        """Make updates as people write them; return the values of each loss."""
        values = [[], [], []]
        for update in range(updates):
            for number, (loss, module, optimizer) in enumerate(self.stages()):
                if (before + update + 1) % every[number] == 0:
                    for _, _, other in self.stages():
                        other.zero_grad()
                    result = loss(module, first(data, update))
                    value = result[0] if isinstance(result, tuple) else result
                    value.backward()
                    optimizer.step()
                    values[number].append(value.detach())
            if (before + update + 1) % every[3] == 0:
                with torch.no_grad():
                    for t, p in zip(
                        self.target.parameters(), self.critic.parameters(), strict=True
                    ):
                        t.mul_(1 - TAU).add_(TAU * p)
        for _, _, optimizer in self.stages():
            optimizer.zero_grad()
        return [torch.stack(some) for some in values]

    def assert_equal(self, other):
        for name in ("actor", "critic", "target"):
            assert_states_equal(getattr(self, name), getattr(other, name), 1e-12)
        torch.testing.assert_close(self.log_alpha, other.log_alpha, rtol=0, atol=1e-12)
        for name in ("actor_optimizer", "critic_optimizer", "alpha_optimizer"):
            one, two = (getattr(x, name).state_dict()["state"] for x in (self, other))
            assert {p: list(s) for p, s in one.items()} == {p: list(s) for p, s in two.items()}
            for place, state in two.items():
                for key, tensor in state.items():
                    torch.testing.assert_close(one[place][key], tensor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("every", [(1, 1, 1, 1), (1, 2, 3, 2)], ids=["together", "delayed"])
def test_three_losses_and_a_follower(every):
    one, two = ActorCritic(), ActorCritic()
    step = ll.fuse(one.stages(), follow=[(one.target, one.critic, TAU)], every=every)
    before = 0
    for updates in (5, 4, 5):  # in the second call the delayed ones begin at another place
        data = batches(updates, torch.float64, seed=updates)
        (critic, goals), actor, alpha = step.many(data)
        expected = two.eager(data, updates, every, before)
        for values, right in zip((critic, actor, alpha), expected, strict=True):
            torch.testing.assert_close(values, right, rtol=0, atol=1e-12)
        assert goals.shape == (updates, 6)
        one.assert_equal(two)
        before += updates
    assert all(p.grad is None for p in [*one.actor.parameters(), *one.critic.parameters()])


def test_one_update_gives_none_for_a_loss_whose_turn_it_is_not():
    one, two = ActorCritic(), ActorCritic()
    follow = [(one.target, one.critic, TAU)]
    step = ll.fuse(one.stages(), follow=follow, every=[1, 2, 1], check="never")
    data = batches(2, torch.float64)
    results = [step(first(data, update)) for update in range(2)]
    assert results[0][1] is None
    assert results[1][1].shape == ()
    two.eager(data, 2, [1, 2, 1, 1])
    one.assert_equal(two)


def test_a_hard_follower_copies_buffers():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    target = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss(net, batch):
        return net(batch["obs"]).pow(2).mean() + target(batch["obs"]).detach().mean()

    target.eval()
    follow = [(target, net, 1.0)]
    step = ll.fuse(loss, net, optimizer, follow=follow, every=[1, 3], check="never")
    before = memory(target)
    step.many(batches(2))
    assert memory(target) == before
    step.many(batches(1))
    assert memory(target) == memory(net)


def test_a_module_that_two_optimizers_share():
    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).double()
        one = torch.optim.Adam(net.parameters(), lr=0.01)
        return net, one, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

    def up(net, batch):
        return net(batch["obs"]).mean()

    def down(net, batch):
        return net(batch["obs"]).pow(2).mean()

    net, *optimizers = make()
    step = ll.fuse([(up, net, optimizers[0]), (down, net, optimizers[1])])
    data = batches(4, torch.float64)
    step.many(data)
    other, *theirs = make()
    for update in range(4):
        for loss, optimizer in zip((up, down), theirs, strict=True):
            optimizer.zero_grad()
            loss(other, first(data, update)).backward()
            optimizer.step()
    assert_states_equal(net, other, 1e-12)


def test_two_fused_steps_on_one_module():
    net = nn.Linear(3, 1).double()
    plain = copy.deepcopy(net)
    make = lambda n: torch.optim.Adam(n.parameters(), lr=0.1)  # noqa: E731
    optimizer, other = make(net), make(plain)

    def up(net, batch):
        return net(batch["obs"]).mean()

    def down(net, batch):
        return net(batch["obs"]).pow(2).mean()

    steps = [ll.fuse(loss, net, optimizer, check="never") for loss in (up, down)]
    data = first(batches(1, torch.float64))
    for _ in range(2):
        for step, loss in zip(steps, (up, down), strict=True):
            step(data)
            other.zero_grad()
            loss(plain, data).backward()
            other.step()
    assert_states_equal(net, plain, 1e-12)
