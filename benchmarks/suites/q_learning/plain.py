"""The update that we replace, written plainly in eager PyTorch, and proposals to make it faster.

It is double DQN as users write it: batches from contiguous tensors, targets without gradient, Huber
loss, backward, clip, Adam. It has no debug line and reads nothing back, and so is faster than the
code that the founding plan (docs/speed.md) was about; what that line costs in place is in the suite
`own_code`. The proposals are written from a description of that plan, and checked like any other
update: the check fails those that are another algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.processes import torch
from suites.q_learning.updates import TOLERANCE, Layers, Learned, Rules, Update

EAGER, FUSED_ADAM = "PyTorch, eager", "PyTorch, eager, fused Adam"


def network(layers: Layers) -> Any:
    """Return a `torch.nn.Sequential` with these weights."""
    parts: list[Any] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data = torch.from_numpy(np.ascontiguousarray(weight.T))
        linear.bias.data = torch.from_numpy(bias.copy())
        parts += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def layers_of(net: Any) -> Layers:
    """Return the weights of a `torch.nn.Sequential`: the inverse of `network`."""
    parts = [part.detach().numpy().copy() for part in net.parameters()]
    return [(weight.T, bias) for weight, bias in zip(parts[::2], parts[1::2], strict=True)]


def huber(q: Any, batch: dict, targets: Any) -> Any:
    """Return the loss of the values of the actions taken."""
    taken = q.gather(1, batch["action"].unsqueeze(1)).squeeze(1)
    return torch.nn.functional.smooth_l1_loss(taken, targets)


class Learner:
    """An online network, a target network, an optimizer, and one update."""

    def __init__(self, online: Layers, target: Layers, rules: Rules, fused: bool = False) -> None:
        self.rules = rules
        self.online, self.target = network(online), network(target)
        self.parameters = list(self.online.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=rules.rate, fused=fused)

    def targets(self, batch: dict) -> Any:
        with torch.no_grad():
            values = self.target(batch["next_obs"])
            judge = self.online(batch["next_obs"]) if self.rules.double else values
            return self.targets_from(values, judge, batch)

    def targets_from(self, values: Any, judge: Any, batch: dict) -> Any:
        """Return r + γ · the value of the action that `judge` values most; r where terminated."""
        value = values.gather(1, judge.argmax(1, keepdim=True)).squeeze(1)
        ahead = batch["reward"] + self.rules.gamma * value
        return torch.where(batch["terminated"], batch["reward"], ahead)

    def loss(self, batch: dict) -> Any:
        return huber(self.online(batch["obs"]), batch, self.targets(batch))

    def update(self, batch: dict) -> None:
        self.step(self.loss(batch))

    def step(self, loss: Any) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.apply()

    def apply(self) -> None:
        """Clip the gradients, and make a step of Adam with them."""
        if self.rules.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.rules.max_norm)
        self.optimizer.step()


class Sampler:
    """Uniform draws from contiguous tensors, which are remembered until `drawn` is called."""

    def __init__(self, stored: dict[str, np.ndarray]) -> None:
        self.fields = {name: torch.from_numpy(values) for name, values in stored.items()}
        self.count = len(stored["obs"])
        self._drawn: list[Any] | None = []

    def rows(self, batch: int) -> Any:
        rows = torch.randint(self.count, (batch,))
        if self._drawn is not None:
            self._drawn.append(rows)
        return rows

    def __call__(self, batch: int) -> dict:
        rows = self.rows(batch)
        return {name: values[rows] for name, values in self.fields.items()}

    def drawn(self) -> np.ndarray:
        """Return the indices of all draws so far; from now on none is remembered."""
        drawn, self._drawn = self._drawn or [], None
        return np.concatenate([rows.numpy() for rows in drawn])


def call(case: Update, learner: Learner, sampler: Sampler, event: Callable[[], None]) -> Call:
    """Return a call that times `event`, and reads what it drew and learned."""

    def read(_: None) -> Learned:
        rows = sampler.drawn().reshape(-1, case.batch)
        return Learned(rows, layers_of(learner.online), case.rules)

    return Call(event, read)


def start(case: Update, fused: bool = False) -> tuple[Learner, Sampler]:
    torch.manual_seed(case.seed)
    return Learner(case.online, case.target, case.rules, fused), Sampler(case.stored)


Event = Callable[[Learner, Sampler, Update], None]


def _prepare(case: Update, event: Event, fused: bool = False) -> Call:
    learner, sampler = start(case, fused)
    return call(case, learner, sampler, partial(event, learner, sampler, case))


def _one_by_one(loss: Callable[[Learner, dict], Any]) -> Event:
    def event(learner: Learner, sampler: Sampler, case: Update) -> None:
        for _ in range(case.draws):
            batch = sampler(case.batch)
            for _ in range(case.repeats):
                learner.step(loss(learner, batch))

    return event


EAGER_CONTENDERS = tuple(
    Contender(
        name, "torch", "peer", partial(_prepare, event=_one_by_one(Learner.loss), fused=fused),
        TOLERANCE,
    )
    for name, fused in ((EAGER, False), (FUSED_ADAM, True))
)  # fmt: skip


SHIPPED = "as shipped: a debug line formatted at each loss"
WITHOUT_THE_LINE = "deleting the debug line"
NO_GRAD = "proposed: all values under no_grad"
RESIDUAL = "proposed: s and s' in one pass, gradient through both"
ONE_PASS = "proposed: s and s' in one pass, targets constant"
SLOTS = "proposed: preallocated batches"
PREFETCH = "proposed: K batches drawn at once"
MEGA = "proposed: K batches as one"
ACCUMULATED = "proposed: K gradients accumulated"
COMPILED = "proposed: torch.compile on the loss"


def _shipped(learner: Learner, batch: dict) -> Any:
    """Return the loss, after two tensors are formatted for a message that nobody reads."""
    q, targets = learner.online(batch["obs"]), learner.targets(batch)
    taken = q.gather(1, batch["action"].unsqueeze(1)).squeeze(1)
    assert f"q: {taken}\ntargets: {targets}"
    return torch.nn.functional.smooth_l1_loss(taken, targets)


def _no_grad(learner: Learner, batch: dict) -> Any:
    with torch.no_grad():
        return learner.loss(batch)


def _in_one_pass(learner: Learner, batch: dict, constant: bool) -> Any:
    """Return the loss, with online values of s and s' from one forward pass over 2B rows."""
    here, there = learner.online(torch.cat([batch["obs"], batch["next_obs"]])).chunk(2)
    with torch.set_grad_enabled(not constant):
        # Without `constant` the targets are the online network's own, and carry its gradient.
        values = learner.target(batch["next_obs"]) if constant else there
        targets = learner.targets_from(values, there, batch)
    return huber(here, batch, targets)


def _slots(case: Update) -> Call:
    """Return a call that gathers every batch into the same preallocated tensors."""
    learner, sampler = start(case)
    slots = {
        name: torch.empty((case.batch, *values.shape[1:]), dtype=values.dtype)
        for name, values in sampler.fields.items()
    }

    def event() -> None:
        for _ in range(case.draws):
            rows = sampler.rows(case.batch)
            for name, values in sampler.fields.items():
                torch.index_select(values, 0, rows, out=slots[name])
            for _ in range(case.repeats):
                learner.update(slots)

    return call(case, learner, sampler, event)


def _prefetched(learner: Learner, sampler: Sampler, case: Update) -> None:
    drawn = sampler(case.draws * case.batch)
    for parts in zip(*(values.chunk(case.draws) for values in drawn.values()), strict=True):
        batch = dict(zip(drawn, parts, strict=True))
        for _ in range(case.repeats):
            learner.update(batch)


def _mega(learner: Learner, sampler: Sampler, case: Update) -> None:
    learner.update(sampler(case.draws * case.batch))


def _accumulated(learner: Learner, sampler: Sampler, case: Update) -> None:
    """Make one step from K forward and backward passes: one large batch in pieces."""
    learner.optimizer.zero_grad()
    for _ in range(case.draws):
        (learner.loss(sampler(case.batch)) / case.draws).backward()
    learner.apply()


def _compiled(case: Update) -> Call:
    learner, sampler = start(case)
    loss = torch.compile(learner.loss, fullgraph=True)
    event = _one_by_one(lambda _, batch: loss(batch))
    return call(case, learner, sampler, partial(event, learner, sampler, case))


def _made_by(event: Event) -> Callable[[Update], Call]:
    return partial(_prepare, event=event)


PROPOSALS = tuple(
    Contender(
        name, "torch", "reference" if name == SHIPPED else "proposal", prepare, TOLERANCE, note,
        claim,
    )
    for name, prepare, claim, note in (
        (SHIPPED, _made_by(_one_by_one(_shipped)),
         "the loss takes 0.378 ms, because its operations are not vectorised",
         "they are; what takes the time is the text of two tensors, built at every log level"),
        (WITHOUT_THE_LINE, _made_by(_one_by_one(Learner.loss)), "751 → 173 µs a loss in SLM-Lab",
         "nothing else is changed"),
        (NO_GRAD, _made_by(_one_by_one(_no_grad)), "saves the graph",
         "as written: there is nothing to go backward through"),
        (RESIDUAL, _made_by(_one_by_one(partial(_in_one_pass, constant=False))),
         "one forward in place of two or three, 0.378 → 0.1 ms",
         ("right for no member of the family: the target network is left out, and targets carry a "
          "gradient")),
        (ONE_PASS, _made_by(_one_by_one(partial(_in_one_pass, constant=True))),
         "one forward in place of two, 0.378 → 0.1 ms",
         "the backward pass then runs over 2B rows"),
        (SLOTS, _slots, "no allocation in the loop", "the allocator keeps its blocks anyway"),
        (PREFETCH, _made_by(_prefetched), "one draw in place of K", "what ours does, too"),
        (MEGA, _made_by(_mega), "K updates in one: 30–40 % more frames a second, perhaps 100 %",
         "one step from θ₀ in place of K steps: a different algorithm (ours: --mega-batch)"),
        (ACCUMULATED, _made_by(_accumulated), "+9 to 13 % frames a second",
         "K forward and backward passes for one step: a different algorithm (ours: --accumulate)"),
        (COMPILED, _compiled, "20–30 %", "compilation is not counted"),
    )
)  # fmt: skip
