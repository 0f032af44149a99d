"""Whole losses as RL code writes them: lowered with their gradients, they equal PyTorch's."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.lowered import check_equal, run
from torch import nn
from torch.distributions import Beta, Categorical, Independent, Normal

from loopless.fused.tracing import flatten

pytestmark = pytest.mark.slow

N, GAMMA = 8, 0.99


def mlp(*sizes, activation=nn.ReLU):
    layers = [
        part for n, m in itertools.pairwise(sizes) for part in (nn.Linear(n, m), activation())
    ]
    return nn.Sequential(*layers[:-1])


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.value, self.advantage = mlp(4, 16), mlp(16, 1), mlp(16, 3)

    def forward(self, x):
        x = F.relu(self.trunk(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)


class Noisy(nn.Module):
    """A linear layer whose factorized noise comes with the batch."""

    def __init__(self):
        super().__init__()
        self.mean, self.deviation = nn.Linear(4, 3), nn.Parameter(torch.full((3, 4), 0.1))

    def forward(self, x, noise):
        spread = torch.sign(noise) * noise.abs().sqrt()
        weight = self.mean.weight + self.deviation * torch.outer(spread[4:], spread[:4])
        return F.linear(x, weight, self.mean.bias)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = (
            mlp(4, 16, 3, activation=nn.Tanh),
            mlp(4, 16, 1, activation=nn.Tanh),
        )
        self.log_std = nn.Parameter(torch.full((1, 3), -0.5))

    def forward(self, x):
        return self.actor(x), self.critic(x).flatten()


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.memory, self.head = mlp(4, 8), kind(8, 8), mlp(8, 3)

    def forward(self, x):
        return self.head(self.memory(torch.tanh(self.embed(x)))[0])


class Block(nn.Module):
    """A block of a GPT: causal attention and a GELU network, each on normalized residuals."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(5, 8)
        self.first, self.second, self.last = (nn.LayerNorm(8) for _ in range(3))
        self.mix, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.wide = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        q, k, v = (
            part.view(*tokens.shape, 2, 4).transpose(1, 2)
            for part in self.mix(self.first(x)).split(8, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        x = x + self.wide(self.second(x))
        return self.last(x) @ self.tokens.weight.T


def pictures():
    return nn.Sequential(
        nn.Conv2d(2, 4, 4, 2), nn.ReLU(), nn.Conv2d(4, 6, 3, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


draws = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(shape, generator=draws)


def whole(bound, *shape):
    return torch.randint(bound, shape, generator=draws)


OBS, NEXT, ACTIONS, REWARDS, DONE = normal(N, 4), normal(N, 4), whole(3, N), normal(N), whole(2, N)
torch.manual_seed(0)
TARGET, ACTOR, CRITIC = Dueling(), mlp(4, 16, 6), mlp(7, 16, 1)


def dqn(net, obs, actions, rewards, done, next_obs):
    q = net(obs).gather(1, actions[:, None]).squeeze(1)
    with torch.no_grad():
        best = TARGET(next_obs).max(dim=1).values
    return F.mse_loss(rewards + GAMMA * best * (1 - done.float()), q)


def double_dqn(net, obs, actions, rewards, done, next_obs):
    q = net(obs)[torch.arange(len(actions)), actions]
    with torch.no_grad():
        choice = net(next_obs).argmax(1, keepdim=True)
        target = rewards + GAMMA * (1 - done) * TARGET(next_obs).gather(1, choice).squeeze(-1)
    return F.smooth_l1_loss(q, target, reduction="none").mean()


def noisy(net, obs, actions, noise):
    return F.huber_loss((net(obs, noise) * F.one_hot(actions, 3)).sum(1), obs[:, 0])


def c51(net, obs, actions, rewards, done, next_obs):
    support = torch.linspace(-2, 2, 5)
    with torch.no_grad():
        next_p = net(next_obs).view(-1, 3, 5).softmax(-1)
        best = (next_p * support).sum(-1).argmax(-1)
        next_p = next_p[torch.arange(N), best]
        moved = (rewards[:, None] + GAMMA * support * (1 - done[:, None])).clamp(-2, 2)
        b = moved + 2
        low, high = b.floor().clamp(0, 4), b.ceil().clamp(0, 4)
        share_low = (high + (low == high).float() - b) * next_p
        share_high = (b - low) * next_p
        target = torch.zeros_like(next_p)
        for i in range(N):  # as CleanRL writes it
            target[i].index_add_(0, low[i].long(), share_low[i])
            target[i].index_add_(0, high[i].long(), share_high[i])
    log_p = (
        net(obs).view(-1, 3, 5)[torch.arange(N), actions].softmax(-1).clamp(1e-5, 1 - 1e-5).log()
    )
    return (-(target * log_p).sum(-1)).mean()


def quantiles(net, obs, actions, rewards, done, next_obs):
    tau = (torch.arange(5) + 0.5) / 5
    z = net(obs).view(-1, 3, 5)[torch.arange(N), actions]
    with torch.no_grad():
        next_z = net(next_obs).view(-1, 3, 5)
        best = next_z.mean(-1).argmax(-1)
        target = rewards[:, None] + GAMMA * (1 - done[:, None]) * next_z[torch.arange(N), best]
    gap = target[:, None, :] - z[:, :, None]
    huber = torch.where(gap.abs() < 1, 0.5 * gap**2, gap.abs() - 0.5)
    return ((tau[:, None] - (gap.detach() < 0).float()).abs() * huber).sum(1).mean()


def ppo(dist, actions, old, advantages, returns, values, old_values):
    ratio = (dist.log_prob(actions) - old).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)).mean()
    clipped = old_values + torch.clamp(values - old_values, -0.2, 0.2)
    value = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()
    return policy - 0.01 * dist.entropy().mean() + 0.5 * value


def ppo_discrete(net, obs, actions, *rest):
    logits, values = net(obs)
    *rest, old_values = rest
    return ppo(Categorical(logits=logits), actions, *rest, values, old_values)


def ppo_masked(net, obs, mask, actions, *rest):
    logits, values = net(obs)
    *rest, old_values = rest
    logits = torch.where(mask, logits, torch.tensor(-1e8))
    return ppo(Categorical(logits=logits), actions, *rest, values, old_values)


def ppo_continuous(net, obs, actions, *rest):
    mean, values = net(obs)
    *rest, old_values = rest
    dist = Independent(Normal(mean, net_std(net).expand_as(mean).exp()), 1)
    return ppo(dist, actions, *rest, values, old_values)


def ppo_beta(net, obs, actions, *rest):
    shape, values = net(obs)
    *rest, old_values = rest
    dist = Independent(Beta(F.softplus(shape) + 1, F.softplus(-shape) + 1), 1)
    return ppo(dist, actions.sigmoid(), *rest, values, old_values)


def net_std(net):
    return net.module.log_std


def sac_critic(net, obs, actions, rewards, done, next_obs, noise):
    with torch.no_grad():
        mean, log_std = ACTOR(next_obs).chunk(2, -1)
        log_std = -5 + 0.5 * 7 * (torch.tanh(log_std) + 1)
        raw = mean + noise * log_std.exp()
        action = raw.tanh()
        log_p = Normal(mean, log_std.exp()).log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        next_q = CRITIC(torch.cat([next_obs, action], 1)) - 0.2 * log_p.sum(1, keepdim=True)
        target = rewards.flatten() + (1 - done.flatten()) * GAMMA * next_q.view(-1)
    return F.mse_loss(net(torch.cat([obs, actions], 1)).view(-1), target)


def sac_actor(net, obs, noise):
    mean, log_std = net(obs).chunk(2, -1)
    dist = Normal(mean, log_std.clamp(-5, 2).exp())
    raw = mean + noise * dist.scale
    log_p = (dist.log_prob(raw) - 2 * (np.log(2.0) - raw - F.softplus(-2 * raw))).sum(1)
    return (0.2 * log_p - CRITIC(torch.cat([obs, raw.tanh()], 1)).view(-1)).mean()


def td3(net, obs, actions, rewards, done, next_obs, noise):
    with torch.no_grad():
        smooth = (ACTOR(next_obs)[:, :3].tanh() + (noise * 0.2).clamp(-0.5, 0.5)).clamp(-1, 1)
        target = rewards + (1 - done) * GAMMA * CRITIC(torch.cat([next_obs, smooth], 1)).view(-1)
    return F.mse_loss(net(torch.cat([obs, actions], 1)).view(-1), target)


def over_time(net, obs, actions):
    return F.cross_entropy(net(obs).flatten(0, 1), actions.flatten())


def language(net, tokens):
    return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def classify(net, images, labels):
    return F.cross_entropy(net(images / 255), labels)


TRANSITIONS = OBS, ACTIONS, REWARDS, DONE, NEXT
ROLLOUT = -normal(N).abs(), normal(N), normal(N), normal(N)
LOSSES = {
    "dqn": (dqn, Dueling(), TRANSITIONS),
    "double dqn": (double_dqn, Dueling(), TRANSITIONS),
    "noisy": (noisy, Noisy(), (OBS, ACTIONS, normal(7))),
    "c51": (c51, mlp(4, 16, 15), TRANSITIONS),
    "quantiles": (quantiles, mlp(4, 16, 15), TRANSITIONS),
    "ppo": (ppo_discrete, ActorCritic(), (OBS, ACTIONS, *ROLLOUT)),
    "ppo masked": (ppo_masked, ActorCritic(), (OBS, normal(N, 3) < 1, ACTIONS, *ROLLOUT)),
    "ppo continuous": (ppo_continuous, ActorCritic(), (OBS, normal(N, 3), *ROLLOUT)),
    "ppo beta": (ppo_beta, ActorCritic(), (OBS, normal(N, 3), *ROLLOUT)),
    "sac critic": (
        sac_critic,
        mlp(7, 16, 1),
        (OBS, normal(N, 3), REWARDS, DONE, NEXT, normal(N, 3)),
    ),
    "sac actor": (sac_actor, mlp(4, 16, 6), (OBS, normal(N, 3))),
    "td3": (td3, mlp(7, 16, 1), (OBS, normal(N, 3), REWARDS, DONE, NEXT, normal(N, 3))),
    "lstm": (over_time, Recurrent(nn.LSTM), (normal(8, 3, 4), whole(3, 8, 3))),
    "gru": (over_time, Recurrent(nn.GRU), (normal(8, 3, 4), whole(3, 8, 3))),
    "encoder": (
        over_time,
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (normal(3, 5, 8), whole(8, 3, 5)),
    ),
    "gpt": (language, Block(), (whole(11, 3, 5),)),
    "pictures": (classify, pictures(), (whole(256, 5, 2, 10, 10).to(torch.uint8), whole(3, 5))),
}


class Called:
    """A module with other tensors for its parameters, called as the module itself would be."""

    def __init__(self, module, parameters):
        self.source, self.parameters = module, parameters

    def __call__(self, *args):
        return torch.func.functional_call(self.source, self.parameters, args)

    @property
    def module(self):
        return type("Parameters", (), self.parameters)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradients_equal_pytorch(name):
    loss, module, batch = LOSSES[name]
    names = [name for name, _ in module.named_parameters()]

    def call(*tensors):
        parameters = [x.detach().requires_grad_() for x in tensors[: len(names)]]
        value = loss(
            Called(module, dict(zip(names, parameters, strict=True))), *tensors[len(names) :]
        )
        return value, *torch.autograd.grad(value, parameters, allow_unused=True)

    tensors = [*(x.detach() for x in module.parameters()), *batch]
    expected = call(*tensors)
    assert any(x is not None and x.abs().max() > 1e-4 for x in expected[1:])
    check_equal(run(flatten(call, *tensors), tensors), expected)
