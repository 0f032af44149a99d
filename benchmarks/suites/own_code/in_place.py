"""Cases, checks and contenders of the section `in_place`: one call in the original's own class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from loopless import reference
from loopless.bench.contest import Call, Contender, Verdict
from suites.own_code import originals
from suites.own_code.originals import DISCOUNT, GAMMA, LAMBDA
from suites.own_code.plain import QUpdates
from suites.processes import torch

ORIGINAL, OURS = "the original", "loopless in its place"
DELETED = "the original, its debug line deleted"
STALE = -7.0  # what an earlier rollout left in the columns that this one does not use


def verdict(error: float, contender: Contender) -> Verdict:
    """Return whether an error is within the contender's tolerance; NaN is not."""
    wrong = not error <= contender.tolerance
    return Verdict(f"off by up to {error:.2g}" if wrong else "", error)


@dataclass(frozen=True)
class Advantages:
    """A rollout in which one environment has no step, and a third has fewer than the others."""

    envs: int = 64
    steps: int = 512

    @property
    def label(self) -> str:
        return f"esper-lite's GAE, {self.envs} envs × {self.steps} steps"

    @cached_property
    def counts(self) -> np.ndarray:
        """Return how many columns each environment has filled."""
        counts = np.full(self.envs, self.steps)
        counts[::3] = np.random.default_rng(1).integers(1, self.steps, len(counts[::3]))
        counts[1] = 0
        return counts

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rollout; every other environment was truncated at its last step."""
        rng, shape = np.random.default_rng(0), (self.envs, self.steps)
        names = ("rewards", "values", "bootstrap_values")
        arrays: dict[str, Any] = {n: rng.standard_normal(shape, dtype=np.float32) for n in names}
        cut = np.arange(self.steps) == self.counts[:, None] - 1
        cut[::2] = False
        return arrays | {"dones": (rng.random(shape) < 0.02) | cut, "truncated": cut}

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare with the loop twin in float64; δ is the advantage where λ = 0."""
        a, steps = self.arrays, np.arange(self.steps)
        last, valid = steps == self.counts[:, None] - 1, steps < self.counts[:, None]
        follows = np.where(
            last, a["bootstrap_values"] * a["truncated"], np.roll(a["values"], -1, 1)
        )
        inputs = a["rewards"], a["values"], follows, a["dones"] & ~a["truncated"], a["truncated"]
        twin = partial(reference.gae, *inputs, gamma=GAMMA, valid=valid, time_axis=1)
        expected = (*twin(lambda_=LAMBDA), twin(lambda_=0.0)[0])
        unused = 0.0 if contender.name == OURS else STALE
        errors = [
            np.abs(received - np.where(valid, right, unused)) / (1 + np.abs(right))
            for received, right in zip(call.read(output), expected, strict=True)
        ]
        return verdict(float(np.max(errors)), contender)


def rollout_call(buffer: type[originals.RolloutBuffer], case: Advantages) -> Call:
    arrays = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    rollout = buffer(arrays, case.counts.tolist(), STALE)

    def read(_: Any) -> list[np.ndarray]:
        return [x.numpy() for x in (rollout.advantages, rollout.returns, rollout.td_errors)]

    return Call(rollout.compute_advantages_and_returns, read)


@dataclass(frozen=True)
class Successors:
    """Episodes of equal length, one segment in each: the law is the same in both classes."""

    episodes: int = 1000
    steps: int = 1000
    batch: int = 256
    checked: int = 64  # batches

    @property
    def label(self) -> str:
        return f"ALLO's replay, {self.batch} of {self.episodes} episodes × {self.steps} steps"

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return observations, which are (episode, step), and marks and lengths."""
        shape = self.episodes, self.steps + 1
        obs = np.moveaxis(np.indices(shape, np.float32), 0, -1).copy()
        marks = np.zeros(shape, np.float32)
        marks[:, -2:] = 1
        return obs, marks, np.full(self.episodes, self.steps + 1)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare means of starts, gaps and episodes with their laws', in standard errors."""
        obs, following = map(np.concatenate, zip(*call.read(output), strict=True))
        rows, starts, gaps = obs[:, 0], obs[:, 1], following[:, 1] - obs[:, 1]
        horizons = self.steps - starts
        if (rows != following[:, 0]).any() or (gaps < 1).any() or (gaps > horizons).any():
            return Verdict("a successor outside of its segment")
        # The untruncated mean, less what each horizon cuts off.
        means = 1 / (1 - DISCOUNT) - horizons * DISCOUNT**horizons / (1 - DISCOUNT**horizons)
        pairs = (
            (starts, (self.steps - 1) / 2), (rows, (self.episodes - 1) / 2), (gaps, means.mean())
        )  # fmt: skip
        scores = [
            abs(x.mean(dtype=np.float64) - mean) / (x.std(dtype=np.float64) / len(x) ** 0.5)
            for x, mean in pairs
        ]
        return verdict(float(max(scores)), contender)


def episodic_call(buffer: type[Any], case: Successors) -> Call:
    sample = partial(buffer(*case.arrays).sample, case.batch)
    return Call(sample, lambda _: [sample() for _ in range(case.checked)])


@dataclass(frozen=True)
class Storing:
    """One step of CartPole, stored; the first `checked` steps are read again."""

    capacity: int = 10_000
    checked: int = 30

    @property
    def label(self) -> str:
        return "SLM-Lab's memory: one transition of CartPole added"

    def step(self, number: int) -> dict[str, Any]:
        """Return a transition whose state half precision can hold."""
        state = np.arange(number, number + 4, dtype=np.float32)
        ends = {"terminated": number % 7 == 6, "truncated": False}
        return {
            "state": state,
            "action": number % 2,
            "reward": 1.0,
            "next_state": state + 1,
            **ends,
        }

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        states = [self.step(number)["state"] for number in range(self.checked)]
        return verdict(float(np.abs(np.array(call.read(output)) - states).max()), contender)


def storing_call(memory: type[Any], case: Storing) -> Call:
    add, step = memory(case.capacity).add, case.step(1)

    def read(_: Any) -> list[np.ndarray]:
        checked, states = memory(case.capacity), []
        for number in range(case.checked):
            checked.add(**case.step(number))
            states.append(checked.newest())
        return states

    return Call(lambda: add(**step), read)


@dataclass(frozen=True)
class QLoss:
    """A batch as the agent's memory gives it; no backward pass."""

    batch: int = 32
    hidden: int = 64

    @property
    def label(self) -> str:
        return f"SLM-Lab's calc_q_loss, batch {self.batch}, [{self.hidden}]"

    @cached_property
    def updates(self) -> QUpdates:
        return QUpdates((self.hidden,), self.batch, 1)

    def prepare(self, dtype: Any) -> tuple[Any, dict[str, Any], Any]:
        """Return net, batch and target net."""
        net, target = (module.to(dtype) for module in self.updates.modules())
        rows = {name: torch.from_numpy(x[0]) for name, x in self.updates.rows.items()}
        rows = {n: x.to(dtype) if x.is_floating_point() else x for n, x in rows.items()}
        names = {"obs": "state", "next_obs": "next_state"}
        return net, {names.get(n, n): x for n, x in rows.items()}, target

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the loss and its gradient with float64's."""
        net, batch, target = self.prepare(torch.float64)
        loss = originals.silent_q_loss(None, net, batch, target)
        return verdict(furthest(call.read(output), loss_and_gradient(loss, net)), contender)


def loss_and_gradient(loss: Any, net: Any) -> tuple[float, np.ndarray]:
    gradient = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    return loss.item(), torch.cat([x.flatten() for x in gradient]).numpy()


def furthest(received: tuple[float, np.ndarray], exact: tuple[float, np.ndarray]) -> float:
    """Return the larger of the errors of loss and gradient, each relative to its size."""
    (loss, gradient), (right, exact_gradient) = received, exact
    error = np.linalg.norm(gradient - exact_gradient) / np.linalg.norm(exact_gradient)
    return float(max(abs(loss - right) / abs(right), error))


def q_call(function: Callable[..., Any], case: QLoss) -> Call:
    net, batch, target = case.prepare(torch.float32)
    run = partial(function, None, net, batch, target)
    return Call(run, lambda loss: loss_and_gradient(loss, net))


@dataclass(frozen=True)
class AvatarlLoss:
    """Windows of logits, and the backward pass to the student's."""

    vocabulary: int = 50304
    windows: int = 4
    length: int = 64
    top_k: int = 4

    @property
    def label(self) -> str:
        tokens = self.windows * self.length
        return f"AvataRL's loss and gradient, {tokens} tokens of {self.vocabulary}"

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the logits of student and critic, and the tokens that came."""
        rng, shape = np.random.default_rng(0), (self.windows, self.length, self.vocabulary)
        student, critic = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
        return student, 3 * critic, rng.integers(0, self.vocabulary, shape[:2])

    @cached_property
    def exact(self) -> tuple[float, np.ndarray]:
        """Return loss and gradient of the original in float64."""
        student, critic, gold = map(torch.from_numpy, self.arrays)
        student = student.double().requires_grad_()
        loss, _ = originals.looped_avatarl(student, critic.double(), gold, self.top_k)
        loss.backward()
        assert student.grad is not None
        return loss.item(), student.grad.numpy()

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare loss and gradient with float64's."""
        return verdict(furthest(call.read(output), self.exact), contender)


def avatarl_call(function: Callable[..., Any], case: AvatarlLoss) -> Call:
    student, critic, gold = map(torch.from_numpy, case.arrays)
    student = student.clone().requires_grad_()

    def run() -> Any:
        student.grad = None
        loss, _ = function(student, critic, gold, case.top_k)
        loss.backward()
        return loss

    def read(loss: Any) -> tuple[float, np.ndarray]:
        assert student.grad is not None
        return loss.item(), student.grad.numpy()

    return Call(run, read)


def contenders(
    call: Callable[..., Call], original: Any, ours: Any, tolerance: float, *, library: str = "torch"
) -> tuple[Contender, Contender]:
    """Return the original and ours; `call` makes a call of either."""
    return (
        Contender(OURS, "loopless", "ours", partial(call, ours), tolerance),
        Contender(ORIGINAL, library, "reference", partial(call, original), tolerance),
    )


ADVANTAGES = contenders(rollout_call, originals.RolloutBuffer, originals.OurRolloutBuffer, 1e-5)
SUCCESSORS = contenders(
    episodic_call, originals.EpisodicBuffer, originals.OurEpisodicBuffer, 5.0, library="numpy"
)  # standard errors
STORING = contenders(storing_call, originals.ListMemory, originals.OurMemory, 0.0, library="python")
Q_LOSS = (
    *contenders(q_call, originals.shipped_q_loss, originals.our_q_loss, 1e-5),
    Contender(DELETED, "torch", "proposal", partial(q_call, originals.silent_q_loss), 1e-5),
)
AVATARL = contenders(avatarl_call, originals.looped_avatarl, originals.our_avatarl, 1e-4)
SMALL_ROLLOUT = Advantages(4, 25)
CASES = (
    (SMALL_ROLLOUT, ADVANTAGES),
    (Advantages(), ADVANTAGES),
    (Successors(), SUCCESSORS),
    (Storing(), STORING),
    (QLoss(), Q_LOSS),
    (AvatarlLoss(), AVATARL),
)
QUICK_CASES = (
    (Advantages(8, 64), ADVANTAGES),
    (Successors(100, 1000), SUCCESSORS),
    (Storing(), STORING),
    (QLoss(), Q_LOSS),
    (AvatarlLoss(65), AVATARL),
)
