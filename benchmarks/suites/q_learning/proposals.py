"""What the founding plan proposed for the update, in eager PyTorch; and what it started from.

Each is checked like any other update: what is a different algorithm comes out as one. Written
from a description of the plan. Imports PyTorch when prepared. Tests:
`tests/suites/q_learning/test_bench_proposals.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from loopless.bench.contest import Call, Contender
from suites.q_learning.eager import Learner, Sampler, call, start
from suites.q_learning.updates import TOLERANCE, Update

SHIPPED = "as shipped: a debug line formatted at each loss"
NO_GRAD = "proposed: all values under no_grad"
RESIDUAL = "proposed: s and s' in one pass, gradient through both"
ONE_PASS = "proposed: s and s' in one pass, targets constant"
SLOTS = "proposed: preallocated batches"
PREFETCH = "proposed: K batches drawn at once"
MEGA = "proposed: K batches as one"
ACCUMULATED = "proposed: K gradients accumulated"
COMPILED = "proposed: torch.compile on the loss"

Event = Callable[[Learner, Sampler, Update], None]


def _one_by_one(loss: Callable[[Learner, dict], Any]) -> Event:
    def event(learner: Learner, sampler: Sampler, case: Update) -> None:
        for _ in range(case.draws):
            batch = sampler(case.batch)
            for _ in range(case.repeats):
                learner.step(loss(learner, batch))

    return event


def _shipped(learner: Learner, batch: dict) -> Any:
    """The formatting of two tensors for a message that nobody reads."""
    q, targets = _taken(learner.online(batch["obs"]), batch), learner.targets(batch)
    assert f"q: {q}\ntargets: {targets}"
    return _huber(q, targets)


def _no_grad(learner: Learner, batch: dict) -> Any:
    import torch

    with torch.no_grad():
        return learner.loss(batch)


def _in_one_pass(learner: Learner, batch: dict, constant: bool) -> Any:
    """Online values of s and s' from one forward pass over 2B rows."""
    import torch

    both = learner.online(torch.cat([batch["obs"], batch["next_obs"]]))
    here, there = both.chunk(2)
    with torch.set_grad_enabled(not constant):
        # Without `constant` the targets are the online network's own, and carry its gradient.
        values = learner.target(batch["next_obs"]) if constant else there
        value = values.gather(1, there.argmax(1, keepdim=True)).squeeze(1)
        ahead = batch["reward"] + learner.rules.gamma * value
        targets = torch.where(batch["terminated"], batch["reward"], ahead)
    return _huber(_taken(here, batch), targets)


def _slots(case: Update) -> Call:
    """Rows gathered into the same tensors every time."""
    import torch

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
    for batch in _parts(sampler(case.draws * case.batch), case.draws):
        for _ in range(case.repeats):
            learner.update(batch)


def _mega(learner: Learner, sampler: Sampler, case: Update) -> None:
    learner.update(sampler(case.draws * case.batch))


def _accumulated(learner: Learner, sampler: Sampler, case: Update) -> None:
    """Forward and backward K times, one step: a mega-batch in pieces."""
    learner.optimizer.zero_grad()
    for _ in range(case.draws):
        (learner.loss(sampler(case.batch)) / case.draws).backward()
    learner.apply()


def _compiled(case: Update) -> Call:
    import torch

    learner, sampler = start(case)
    loss = torch.compile(learner.loss, fullgraph=True)
    event = _one_by_one(lambda _, batch: loss(batch))
    return call(case, learner, sampler, partial(event, learner, sampler, case))


def _parts(batch: dict, count: int) -> list[dict]:
    chunks = {name: values.chunk(count) for name, values in batch.items()}
    return [{name: parts[i] for name, parts in chunks.items()} for i in range(count)]


def _taken(q: Any, batch: dict) -> Any:
    return q.gather(1, batch["action"].unsqueeze(1)).squeeze(1)


def _huber(q: Any, targets: Any) -> Any:
    from torch.nn.functional import smooth_l1_loss

    return smooth_l1_loss(q, targets)


def _prepared(event: Event) -> Callable[[Update], Call]:
    def prepare(case: Update) -> Call:
        learner, sampler = start(case)
        return call(case, learner, sampler, partial(event, learner, sampler, case))

    return prepare


def _proposal(name: str, prepare: Callable[[Update], Call], claim: str, note: str) -> Contender:
    return Contender(name, "torch", "proposal", prepare, TOLERANCE, claim=claim, note=note)


PROPOSALS = (
    Contender(
        SHIPPED,
        "torch",
        "reference",
        _prepared(_one_by_one(_shipped)),
        TOLERANCE,
        claim="the loss takes 0.378 ms, because its operations are not vectorised",
        note="they are; what takes the time is the text of two tensors, built at every log level",
    ),
    _proposal(
        NO_GRAD,
        _prepared(_one_by_one(_no_grad)),
        "saves the graph",
        "as written: there is nothing to go backward through",
    ),
    _proposal(
        RESIDUAL,
        _prepared(_one_by_one(partial(_in_one_pass, constant=False))),
        "one forward in place of two or three, 0.378 → 0.1 ms",
        "right for no member of the family: the target network is left out, and targets carry a "
        "gradient",
    ),
    _proposal(
        ONE_PASS,
        _prepared(_one_by_one(partial(_in_one_pass, constant=True))),
        "one forward in place of two, 0.378 → 0.1 ms",
        "the backward pass then runs over 2B rows",
    ),
    _proposal(SLOTS, _slots, "no allocation in the loop", "the allocator keeps its blocks anyway"),
    _proposal(PREFETCH, _prepared(_prefetched), "one draw in place of K", "what ours does, too"),
    _proposal(
        MEGA,
        _prepared(_mega),
        "K updates in one: 30–40 % more frames a second, perhaps 100 %",
        "one step from θ₀ in place of K steps: a different algorithm (ours: --mega-batch)",
    ),
    _proposal(
        ACCUMULATED,
        _prepared(_accumulated),
        "+9 to 13 % frames a second",
        "K forward and backward passes for one step: a different algorithm (ours: --accumulate)",
    ),
    _proposal(
        COMPILED,
        _compiled,
        "20–30 %",
        "compilation is not counted",
    ),
)
