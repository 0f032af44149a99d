"""The suite `returns`: GAE against the loop it replaces, peers, proposals, and streaming speed.

Read the tables first, then `measure`, which races every section. The cases are in
`rollouts.py`, other libraries in `peers.py`, loops and proposals in `plain.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Call, Contender, Contest, Verdict
from loopless.bench.machine import prepare_libraries
from loopless.bench.result import Headline, Result, Target
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_least, at_most, attach, beside, ratio, values
from loopless.bench.timing import Budget
from loopless.reference import returns
from pages import tables
from suites.processes import cache_cooler, jax, torch
from suites.promises import fastest, limit
from suites.returns import rollouts
from suites.returns.peers import LAX_SCAN, PEERS, RLOX, TIANSHOU_KERNEL
from suites.returns.plain import ENV_STEP_LOOP, PROPOSALS, in_torch, stream_arrays, time_loop
from suites.returns.rollouts import TOLERANCE, Rollout, Shape, as_numpy

Judge = Callable[[Shape, Rows], Rows]
TITLES = {
    "shapes": "GAE, both outputs, [T, B] float32: median time, ± half the quartile range",
    "floor": "Against the machine's streaming speed, second-level cache emptied before each call",
    "overhead": "The whole public call, checks included",
    "gradients": "PyTorch with gradients to rewards, values and next values",
    "loops": "Against loops over environments and steps",
    "proposals": "Proposals of the founding note",
}
page = tables(("GAE, both outputs", ("shapes",), "contender"))
HEADLINES = (
    Headline(
        "esper-lite's GAE: 512 steps × 64 envs, PyTorch tensors", "loops", "512×64",
        "loopless, PyTorch",
        (("env × step loop in PyTorch", "the loop it replaces"),
         ("reference: env × step loop", "the loop in bare Python")),
        "five",
    ),
    Headline(
        "GAE, 2048 × 64", "shapes", "2048×64", "loopless, NumPy",
        (("TorchRL, loop", "TorchRL"), ("Stable-Baselines3", "Stable-Baselines3")),
    ),
)  # fmt: skip

# The shapes [T, B] of each section.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "shapes": (
        (25, 4), (25, 16), (128, 8), (128, 64), (2048, 1), (2048, 64), (128, 1024), (1024, 4096),
    ),
    "floor": ((2048, 64), (128, 1024), (1024, 4096)),
    "overhead": ((25, 4),),
    "gradients": ((128, 8), (128, 1024)),
    "compiled": ((25, 4), (128, 8)),
    "loops": ((512, 64), (25, 16)),
    "proposals": ((25, 4), (128, 64), (2048, 64), (128, 1024)),
}  # fmt: skip
QUICK = {"shapes": ((25, 4), (128, 64), (128, 1024)), "floor": ((128, 1024),), "compiled": ()}

NUMPY, TORCH, JAX = "loopless, NumPy", "loopless, PyTorch", "loopless, JAX jit"
PLAIN, BOTH = f"{TORCH}, no gradients", f"{TORCH}, forward + backward"
FLOOR = "floor: two in-place adds"
STREAMS = "floor: GAE's seven arrays, no recurrence"
ADDITIONS = "PyTorch: two additions, forward + backward"
COMPILED, COMPILED_LOOP = f"{TORCH}, compiled", "loop over T, compiled"

# What is promised: limits for the targets below.
FASTER_THAN_PEERS_FROM = 128 * 64  # steps × envs
TWICE_AS_FAST = ((2048, 64), (128, 1024))
ONE_LONG_CHAIN, CHAIN_RATIO = (2048, 1), 2.0  # times Tianshou's bare kernel
RLOX_RATIO = 1.3  # times rlox on that chain, NumPy
SCAN_RATIO = 1.1  # times lax.scan by hand
FLOOR_RATIO = 2.5
STREAMS_RATIO = 2.0  # warm, at the shapes of TWICE_AS_FAST
OVERHEAD_US = {NUMPY: 6.0, TORCH: 12.0}
COMPILED_RATIO = 1.0  # times the compiled loop
GRADIENT_RATIO = 5.0  # times the call without gradients
LOOP_RATIO = {(512, 64): 100.0}  # stated at other shapes


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(total_s=0.12, most_samples=50) if options.quick else Budget()
    contest = Contest(result, budget, say, options.peers)
    prepare_libraries(options.threads)
    result.settings |= {"gamma": 0.99, "lambda": 0.95, "dtype": "float32", "end_rate": 0.01}
    result.settings["jax_async_dispatch"] = False
    result.settings["caches"] = "warm; in section floor, second level emptied before each sample"
    shapes = SHAPES | (QUICK if options.quick else {})
    if not options.ablate:
        shapes = shapes | {"proposals": ()}
    measure(shapes, contest, quick=options.quick)


def measure(
    shapes: Mapping[str, Iterable[Shape]], contest: Contest, *, quick: bool = False
) -> None:
    """Race every section on its shapes."""
    cold, steady = contest.with_budget(warm_s=0.0), contest.with_budget(sample_s=1e-3)
    # In a quick run the slower loop runs on the small shape only.
    env_step = replace(ENV_STEP_LOOP, largest=1_000) if quick else ENV_STEP_LOOP
    ours = IN_NUMPY, IN_TORCH
    races: dict[str, tuple[Contest, Iterable[Contender], Judge]] = {
        "shapes": (contest, (*OURS, LOOP, *PEERS, STREAM, ALL_STREAMS), judge_shape),
        "floor": (cold, (*ours, STREAM, ALL_STREAMS), judge_floor),
        "overhead": (steady, ours, lambda _, rows: limit(rows, OVERHEAD_US, "µs", scale=1e6)),
        "gradients": (contest, WITH_GRADIENTS, judge_gradients),
        "compiled": (contest, IN_PROGRAMS, judge_compiled),
        "loops": (contest, (IN_TORCH, LOOP, env_step), judge_loops),
        "proposals": (contest, (IN_TORCH, *PROPOSALS), lambda _, rows: rows),
    }
    for name, (contest_of, contenders, judge) in races.items():
        for shape in shapes.get(name, ()):
            rollout = Gradients(case(shape)) if name == "gradients" else case(shape)
            cool = cache_cooler() if name == "floor" else None
            contest_of.run(name, rollout, contenders, partial(judge, shape), cool)


def _numpy(function: Callable, rollout: Rollout) -> Call:
    return Call(lambda: function(*rollout.arrays, **rollout.scalars), as_numpy)


def _torch(rollout: Rollout) -> Call:
    return in_torch(ll.gae, rollout)


def _jax(rollout: Rollout) -> Call:
    gae = jax.jit(partial(ll.gae, **rollout.scalars))
    arrays = [jax.numpy.asarray(x) for x in rollout.arrays]
    return Call(lambda: jax.block_until_ready(gae(*arrays)), as_numpy)


def _floor(rollout: Rollout) -> Call:
    totals = np.zeros_like(rollout.rewards), np.zeros_like(rollout.values)

    def stream() -> None:
        np.add(totals[0], rollout.rewards, out=totals[0])
        np.add(totals[1], rollout.values, out=totals[1])

    return Call(stream, None)


def _streams(rollout: Rollout) -> Call:
    arrays = [x.reshape(-1) for x in rollout.arrays]
    outs = np.empty_like(arrays[0]), np.empty_like(arrays[0])
    numbers = np.float32(rollout.gamma), np.float32(rollout.gamma * rollout.lambda_)
    arguments: Any = (*arrays, *numbers, *outs)
    return Call(lambda: stream_arrays(*arguments), None)


IN_NUMPY = Contender(NUMPY, "loopless", "ours", lambda case: _numpy(ll.gae, case), TOLERANCE)
IN_TORCH = Contender(TORCH, "loopless", "ours", _torch, TOLERANCE)
OURS = (IN_NUMPY, IN_TORCH, Contender(JAX, "loopless", "ours", _jax, TOLERANCE))
LOOP = Contender(
    "reference: env × step loop", "loopless", "reference", partial(_numpy, returns.gae), TOLERANCE,
    note="plain Python, float64", largest=200_000,
)  # fmt: skip
STREAM = Contender(FLOOR, "numpy", "floor", _floor, note="rewards and values, each added to a sum")
ALL_STREAMS = Contender(
    STREAMS, "numba", "floor", _streams, note="what GAE reads and writes, element by element"
)


@lru_cache(maxsize=2)
def case(shape: Shape) -> Rollout:
    return rollouts.random_rollout(*shape)


def judge_shape(shape: Shape, rows: Rows) -> Rows:
    """Judge ours against the fastest peer among those that gave the right answer."""
    right = [row for row in rows if row.status == "ok"]
    times = values(right)
    peer, seconds = fastest(right, "peer", "yardstick")
    for name in (NUMPY, TORCH):
        faster = ratio(seconds, times.get(name))
        targets: list[Target] = []
        if shape[0] * shape[1] >= FASTER_THAN_PEERS_FROM:
            targets.append(at_least(1.0, faster, f"1 × as fast as every peer (fastest: {peer})"))
        if shape in TWICE_AS_FAST:
            targets.append(at_least(2.0, faster, f"2 × as fast as the fastest peer ({peer})"))
        if shape in TWICE_AS_FAST and STREAMS in times:
            slower = ratio(times.get(name), times[STREAMS])
            targets.append(at_most(STREAMS_RATIO, slower, f"{STREAMS_RATIO:g} × {STREAMS}"))
        if shape == ONE_LONG_CHAIN:
            slower = ratio(times.get(name), times.get(TIANSHOU_KERNEL))
            targets.append(at_most(CHAIN_RATIO, slower, "2 × Tianshou's bare kernel"))
        if shape == ONE_LONG_CHAIN and name == NUMPY:
            slower = ratio(times.get(name), times.get(RLOX))
            targets.append(at_most(RLOX_RATIO, slower, f"{RLOX_RATIO:g} × {RLOX}"))
        rows = attach(rows, name, targets if name in times else [])
    slower = ratio(times.get(JAX), times.get(LAX_SCAN))
    scan = [at_most(SCAN_RATIO, slower, f"{SCAN_RATIO:g} × lax.scan by hand")]
    return attach(rows, JAX, scan if JAX in times else [])


def judge_floor(_: Shape, rows: Rows) -> Rows:
    """Judge how near ours is to the machine's streaming speed, with emptied caches."""
    rows = limit(rows, dict.fromkeys((NUMPY, TORCH), FLOOR_RATIO), "× the floor", of=FLOOR)
    if STREAMS in values(rows):
        for name in (NUMPY, TORCH):
            rows = attach(rows, name, beside(rows, name, [STREAMS]))
    return rows


@dataclass(frozen=True)
class Gradients:
    """Gradients of both outputs by the three float arrays, contracted with random cotangents."""

    rollout: Rollout

    @property
    def label(self) -> str:
        return self.rollout.label

    def backward(self, function: Callable, dtype: torch.dtype) -> Callable[[], Any]:
        """Return a call that gives the gradients through a function, in this precision."""
        arrays = [torch.from_numpy(x) for x in self.rollout.arrays]
        leaves = [x.to(dtype).requires_grad_() for x in arrays[:3]]
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(leaves[0].shape, generator=generator).to(dtype) for _ in range(2)]
        return lambda: torch.autograd.grad(
            function(*leaves, *arrays[3:], **self.rollout.scalars), leaves, weights
        )

    def check(self, contender: Contender, call: Call, output: Any) -> Verdict:
        """Compare with autograd through a loop over T, in float64."""
        right = self.backward(time_loop, torch.float64)()
        error = rollouts.largest_error(
            tuple(x.numpy() for x in output), tuple(x.numpy() for x in right)
        )
        return rollouts.within(contender.tolerance, error, "gradients")


def _additions(case: Gradients) -> Call:
    """Return the least that a function of three inputs and two outputs costs with gradients."""
    return Call(case.backward(lambda r, v, n, *_, **__: (r + v, v + n), torch.float32), None)


def _compiled(function: Callable, rollout: Rollout) -> Call:
    return in_torch(torch.compile(function, dynamic=False), rollout)


IN_PROGRAMS = (
    Contender(COMPILED, "loopless", "ours", partial(_compiled, ll.gae), TOLERANCE),
    Contender(COMPILED_LOOP, "torch", "yardstick", partial(_compiled, time_loop), TOLERANCE),
)


def judge_compiled(_: Shape, rows: Rows) -> Rows:
    limits = {COMPILED: COMPILED_RATIO}
    return limit(rows, limits, "× the compiled loop", of=COMPILED_LOOP)


WITH_GRADIENTS = (
    Contender(ADDITIONS, "torch", "yardstick", _additions, note="what autograd itself takes"),
    Contender(PLAIN, "loopless", "ours", lambda case: replace(_torch(case.rollout), read=None)),
    Contender(
        BOTH, "loopless", "ours", lambda case: Call(case.backward(ll.gae, torch.float32), tuple),
        TOLERANCE,
    ),
)  # fmt: skip


def judge_gradients(_: Shape, rows: Rows) -> Rows:
    return limit(rows, {BOTH: GRADIENT_RATIO}, "× the call without gradients", of=PLAIN)


def judge_loops(shape: Shape, rows: Rows) -> Rows:
    """Judge ours against each loop at the shape with a promise; state the ratio at the others."""
    loops = [row.contender for row in rows if row.contender != TORCH and row.value is not None]
    if (limit := LOOP_RATIO.get(shape)) is None:
        return attach(rows, TORCH, beside(rows, TORCH, loops))
    return attach(rows, TORCH, as_fast(rows, TORCH, dict.fromkeys(loops, limit)))
