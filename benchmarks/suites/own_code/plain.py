"""Programs as people write them: a Q-network's update and PPO's in eager PyTorch, and acting.

A case holds modules, rows and the loss; `Eager` makes updates with them as a training loop does,
with the fastest of PyTorch's own optimizers. The check compares where K updates have moved the
parameters with where float64 moves them. At the end: where the time of a whole program goes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Call, Contender, Verdict
from suites.processes import torch

OBS, ACTIONS, GAMMA, RATE = 4, 2, 0.99, 1e-3
TOLERANCE = 0.01  # of the movement's length: Adam amplifies the rounding of gradients near 0


def mlp(sizes: tuple[int, ...], activation: str, seed: int) -> Any:
    """Return a network of linear layers with this activation between them."""
    torch.manual_seed(seed)
    layers = [
        layer
        for inputs, outputs in pairwise(sizes)
        for layer in (torch.nn.Linear(inputs, outputs), getattr(torch.nn, activation)())
    ]
    return torch.nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class QUpdates:
    """K updates of a Q-network on batches that are there: Huber, clipped, Adam."""

    hidden: tuple[int, ...]
    batch: int
    updates: int
    max_norm: float = 10.0

    @property
    def label(self) -> str:
        return f"Q-network {list(self.hidden)}, batch {self.batch}, K = {self.updates}"

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Return K batches [K, batch, ...]."""
        rng, shape = np.random.default_rng(0), (self.updates, self.batch)
        obs = rng.standard_normal((*shape, OBS), dtype=np.float32)
        return {
            "obs": obs,
            "action": rng.integers(0, ACTIONS, shape),
            "reward": rng.standard_normal(shape, dtype=np.float32),
            "next_obs": obs + 0.1 * rng.standard_normal((*shape, OBS), dtype=np.float32),
            "done": (rng.random(shape) < 0.05).astype(np.float32),
        }

    indices = None

    def modules(self) -> tuple[Any, Any]:
        """Return the network that learns, and its target."""
        sizes = (OBS, *self.hidden, ACTIONS)
        return mlp(sizes, "ReLU", 0), mlp(sizes, "ReLU", 1)

    @staticmethod
    def loss(net: Any, batch: dict[str, Any], target: Any) -> Any:
        """Return the Huber loss of the taken actions."""
        q = net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():
            best = target(batch["next_obs"]).max(1).values
            aims = batch["reward"] + GAMMA * (1 - batch["done"]) * best
        return torch.nn.functional.smooth_l1_loss(q, aims)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the movement of the parameters with float64's."""
        return check_movement(self, contender, call.read(output))


@dataclass(frozen=True)
class PPOUpdates:
    """The minibatches of one rollout: policy and value of two hidden layers each, clipped, Adam."""

    batch: int = 128
    updates: int = 16
    hidden: tuple[int, ...] = (64, 64)
    max_norm: float = 0.5

    @property
    def label(self) -> str:
        return f"PPO {list(self.hidden)}, batch {self.batch}, K = {self.updates}"

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """Return a rollout, whose rows are the minibatches' four times over."""
        rng, count = np.random.default_rng(0), self.batch * self.updates // 4
        names = ("advantage", "return", "value", "log_prob")
        rows = {name: rng.standard_normal(count, dtype=np.float32) for name in names}
        rows["log_prob"] = np.float32(np.log(0.5)) + 0.1 * rows["log_prob"]
        obs = rng.standard_normal((count, OBS), dtype=np.float32)
        return rows | {"obs": obs, "action": rng.integers(0, ACTIONS, count)}

    @cached_property
    def indices(self) -> np.ndarray:
        """Return the rows of each minibatch, [K, batch]."""
        rng, count = np.random.default_rng(1), len(self.rows["action"])
        epochs = [rng.permutation(count) for _ in range(4)]
        return np.concatenate(epochs).reshape(self.updates, self.batch)

    def modules(self) -> tuple[Any]:
        """Return policy and value as one module."""
        policy, value = ((OBS, *self.hidden, width) for width in (ACTIONS, 1))
        parts = {"policy": mlp(policy, "Tanh", 0), "value": mlp(value, "Tanh", 1)}
        return (torch.nn.ModuleDict(parts),)

    @staticmethod
    def loss(nets: Any, batch: dict[str, Any]) -> Any:
        """Return PPO's clipped surrogate, value loss and entropy."""
        policy = torch.distributions.Categorical(logits=nets["policy"](batch["obs"]))
        ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
        scaled = batch["advantage"]
        scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
        surrogate = torch.min(scaled * ratio, scaled * ratio.clamp(0.8, 1.2)).mean()
        errors = (nets["value"](batch["obs"]).squeeze(-1) - batch["return"]) ** 2
        return 0.5 * errors.mean() - surrogate - 0.01 * policy.entropy().mean()

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the movement of the parameters with float64's."""
        return check_movement(self, contender, call.read(output))


Updates = QUpdates | PPOUpdates


class Eager:
    """A training loop's updates: the loss, backward, clip, and PyTorch's fused Adam."""

    def __init__(self, case: Updates, dtype: Any) -> None:
        self.case = case
        self.net, *self.others = (copy.deepcopy(m).to(dtype) for m in case.modules())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE, fused=True)
        self.rows = {name: torch.from_numpy(rows) for name, rows in case.rows.items()}
        self.rows = {n: x.to(dtype) if x.is_floating_point() else x for n, x in self.rows.items()}
        self.indices = None if case.indices is None else torch.from_numpy(case.indices)

    def __call__(self) -> None:
        for k in range(self.case.updates):
            at = k if self.indices is None else self.indices[k]
            batch = {name: x[at] for name, x in self.rows.items()}
            loss = self.case.loss(self.net, batch, *self.others)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.case.max_norm)
            self.optimizer.step()


def as_vector(module: Any) -> np.ndarray:
    """Return all parameters as one array."""
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy().copy()


def check_movement(case: Updates, contender: Contender, parameters: np.ndarray) -> Verdict:
    """Compare the parameters after the first call with float64's, by the length of the way."""
    start, exact = as_vector(case.modules()[0]), Eager(case, torch.float64)
    exact()
    way = as_vector(exact.net) - start
    error = float(np.linalg.norm(parameters - start - way) / np.linalg.norm(way))
    wrong = not error <= contender.tolerance
    return Verdict(f"off by {error:.2g} of the way" if wrong else "", error)


def eager(case: Updates) -> Call:
    """Return K updates in eager PyTorch."""
    loop = Eager(case, torch.float32)
    return Call(loop, lambda _: as_vector(loop.net))


# --- acting --------------------------------------------------------------------------------------

FORWARD, MODULE = "loopless.forward", "PyTorch module, no_grad"
ACTOR, CATEGORICAL = "loopless.actor", "PyTorch modules and Categorical"


@dataclass(frozen=True)
class Acting:
    """Policy and critic of two hidden layers, and observations."""

    rows: int

    @property
    def label(self) -> str:
        return "one observation" if self.rows == 1 else f"{self.rows} observations"

    @cached_property
    def obs(self) -> np.ndarray:
        shape = (self.rows, OBS) if self.rows > 1 else (OBS,)
        return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

    def modules(self) -> tuple[Any, Any]:
        """Return policy and critic."""
        sizes = (OBS, 64, 64)
        return mlp((*sizes, ACTIONS), "Tanh", 0), mlp((*sizes, 1), "Tanh", 1)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare what was computed, given the actions that were drawn, with float64."""
        expected, received = call.read(output)
        error = float(np.max(np.abs(np.asarray(received) - expected)))
        wrong = not error <= contender.tolerance
        return Verdict(f"off by up to {error:.2g}" if wrong else "", error)

    def exact(self, action: Any = None) -> np.ndarray:
        """Return in float64 the logits; or, given actions, log-probabilities and values."""
        policy, critic = (module.double() for module in self.modules())
        obs = torch.from_numpy(self.obs).double()
        with torch.no_grad():
            logits, value = policy(obs), critic(obs).squeeze(-1)
            if action is None:
                return logits.numpy()
            log_probs = logits.log_softmax(-1).gather(-1, torch.as_tensor(action)[..., None])
            return torch.stack([log_probs.squeeze(-1), value]).numpy()


def _our_forward(case: Acting) -> Call:
    forward, obs = ll.forward(case.modules()[0]), case.obs
    return Call(lambda: forward(obs), lambda out: (case.exact(), out))


def _module(case: Acting) -> Call:
    policy, obs = case.modules()[0], case.obs

    def run() -> np.ndarray:
        with torch.no_grad():
            return policy(torch.from_numpy(obs)).numpy()

    return Call(run, lambda out: (case.exact(), out))


def _our_actor(case: Acting) -> Call:
    policy, critic = case.modules()
    act, obs = ll.actor(policy, "categorical", value=critic), case.obs
    return Call(lambda: act(obs), lambda out: (case.exact(out[0]), out[1:]))


def _categorical(case: Acting) -> Call:
    (policy, critic), obs = case.modules(), case.obs
    categorical = torch.distributions.Categorical

    def run() -> tuple[Any, Any, Any]:
        with torch.no_grad():
            x = torch.from_numpy(obs)
            distribution = categorical(logits=policy(x))
            action = distribution.sample()
            parts = action, distribution.log_prob(action), critic(x).squeeze(-1)
        action, log_prob, value = (part.numpy() for part in parts)
        return action, log_prob, value

    return Call(run, lambda out: (case.exact(out[0]), out[1:]))


FORWARDS = (
    Contender(FORWARD, "loopless", "ours", _our_forward, 1e-5),
    Contender(MODULE, "torch", "reference", _module, 1e-5),
)
ACTORS = (
    Contender(ACTOR, "loopless", "ours", _our_actor, 1e-5),
    Contender(CATEGORICAL, "torch", "reference", _categorical, 1e-5),
)


# --- where the time of a whole program goes ------------------------------------------------------

ENVIRONMENT, UPDATES, REST = "the environment", "updates", "everything else"
PARTS: dict[str, dict[str, tuple[str, ...]]] = {  # of the program, before and after
    "dqn": {
        "acting": ("Agent.act",),
        "storing": ("Memory.add",),
        "drawing batches": ("Memory.sample",),
        UPDATES: ("Agent.update",),
    },
    "founding_dqn": {
        "acting": ("DoubleDQN.act",),
        "storing": ("Replay.add", "ll.ReplayBuffer.add"),
        "drawing batches": ("sample_event",),
        UPDATES: ("DoubleDQN.train",),
    },
    "sb3_dqn": {
        "acting": ("DQN.predict",),
        "storing": ("DQN._store_transition",),
        UPDATES: ("DQN.train",),
    },
    "sb3_ppo": {"acting": ("Acting.forward",), UPDATES: ("PPO.train",)},
}


def acting_of_sb3(*, ours: bool) -> Any:
    """Return the class whose forward acts in a rollout of Stable-Baselines3, or of its adapter."""
    if ours:
        from loopless.adapters.sb3.acting import Sampling

        return Sampling
    from stable_baselines3.common.policies import ActorCriticPolicy

    return ActorCriticPolicy


class Clock:
    """Adds up the seconds of some functions, from the end of the first update on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.started = False

    def time(self, part: str, function: Callable) -> Callable:
        """Return the function, timed."""
        self.seconds.setdefault(part, 0.0)

        def run(*args: Any, **options: Any) -> Any:
            start = perf_counter()
            result = function(*args, **options)
            self.seconds[part] += perf_counter() - start
            if part == UPDATES and not self.started:
                self.started = True
                self.seconds = dict.fromkeys(self.seconds, 0.0)
            return result

        return run


def seconds_of_parts(program: Callable, parts: dict[str, tuple[str, ...]], steps: int) -> Any:
    """Run a program and return the seconds a step of each of its parts, after the first update."""
    names, clock = program.__globals__, Clock()
    for part, paths in parts.items():
        path = next(path for path in paths if path.partition(".")[0] in names)
        *owners, name = path.split(".")
        owner: Any = reduce(getattr, owners[1:], names[owners[0]]) if owners else None
        timed = clock.time(part, getattr(owner, name) if owners else names[name])
        setattr(owner, name, timed) if owners else names.update({name: timed})
    make = names["gym"].make

    def make_timed(*args: Any, **options: Any) -> Any:
        env = make(*args, **options)
        env.step, env.reset = (clock.time(ENVIRONMENT, f) for f in (env.step, env.reset))
        return env

    names["gym"] = SimpleNamespace(make=make_timed)
    speed, _ = program(steps, 0)
    first = next(n for n in ("LEARNING_STARTS", "TRAIN_START", "BATCH_SIZE") if n in names)
    counted = steps - names[first]
    seconds = {part: total / counted for part, total in clock.seconds.items()}
    return seconds | {REST: 1 / speed - sum(seconds.values())}
