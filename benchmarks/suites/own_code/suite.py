"""The suite `own_code`: what `fuse`, `forward` and `actor` gain in somebody's own PyTorch code.

Updates and their check are in `plain.py`. Whole programs are the pairs of examples/adopt, before
and after, each in a process of its own. What one function gains in the founding code bases is in
`originals.py` (their classes, and ours in them) and `in_place.py` (the cases).
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import time
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import loopless as ll
from loopless.bench.contest import Call, Contender, Contest
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_most, attach, beside, ratio, stated, values
from loopless.bench.timing import Budget
from loopless.process import cores
from pages import Lines, grid, section
from suites.own_code import in_place, originals, plain
from suites.own_code.plain import (
    ACTOR,
    ACTORS,
    CATEGORICAL,
    FORWARD,
    FORWARDS,
    MODULE,
    Acting,
    PPOUpdates,
    QUpdates,
    Updates,
)  # fmt: skip
from suites.processes import one_thread, run_child, torch, unlimited
from suites.promises import per_item

EXAMPLES = Path(__file__).parents[3] / "examples" / "adopt"
FUSE, EAGER = "loopless.fuse", "PyTorch, eager, fused Adam"
BEFORE, AFTER = "before: eager PyTorch", "after: loopless"

SMALL, LARGE = QUpdates((64,), 32, 1), QUpdates((256, 128), 64, 32)
FASTER: dict[Updates, float] = {
    SMALL: 4.5,
    replace(SMALL, updates=4): 12.0,
    replace(SMALL, updates=32): 25.0,
    PPOUpdates(): 6.0,
    LARGE: 2.8,
}
FIRST_CALL_S = 4.0


@dataclass(frozen=True)
class Program:
    """A pair of examples/adopt, for how many steps it runs, and what it must gain."""

    name: str
    label: str
    steps: int
    quick_steps: int
    factor: float | None = None


PROGRAMS = (
    Program("dqn", "DQN [120, 84], batch 128, an update in ten steps", 60_000, 3_000, 2.5),
    Program("ppo", "PPO, 4 envs × 128 steps, 4 × 4 updates", 80_000, 4_096, 3.0),
    Program("founding_dqn", "DQN [64], batch 32, 32 updates in four steps", 6_000, 400, 20.0),
    Program("sac", "SAC [64, 64], batch 128, three optimizers, an update a step", 6_000, 1_200),
)
ADAPTERS = (  # Stable-Baselines3 with rl-zoo's settings for CartPole, and one import changed
    Program("sb3_dqn", "Stable-Baselines3's DQN [256, 256], rl-zoo's settings", 20_000, 3_000, 2.0),
    Program("sb3_ppo", "Stable-Baselines3's PPO, 8 envs, rl-zoo's settings", 60_000, 4_096, 2.5),
)
HOPES = {"sb3_dqn": 3.0, "sb3_ppo": 4.0}  # what an adapter should gain after what it must
REPEATS = 3
SMALL_ROLLOUT_FACTOR = 40.0
SLOWER_ADD = 2.5  # how many times as long as a list may the add of a buffer take


@dataclass(frozen=True)
class Replacement:
    """A program of examples/adopt as it was, and with one function replaced.

    A variant is the name of a row, and of the entry of `originals.PATCHES` that makes it; "" is the
    example as it is. The first is the program that the others are compared with.
    """

    program: Program
    variants: tuple[tuple[str, str], ...]


REPLACEMENTS = (
    Replacement(PROGRAMS[1], ((in_place.ORIGINAL, ""), (in_place.OURS, "gae"))),
    Replacement(
        PROGRAMS[2],
        ((in_place.ORIGINAL, "debug_line"), (in_place.OURS, "q_loss"), (in_place.DELETED, "")),
    ),
)
FORWARD_FACTOR, ACTOR_FACTOR = 10.0, 20.0

TITLES = {
    "update": "One update, of K in a call; parameters and optimizer read and written",
    "first": "The first call: capture, compilation and its check",
    "program": "Whole programs, before and after (examples/adopt): steps a second",
    "where": "Where the time of a whole program goes: seconds a step of the environment",
    "two_cores": "A whole program on two cores, two threads for PyTorch: steps a second",
    "in_place": "One call in the original's own class and layout, conversions included",
    "only_the_function": "Whole programs with one function replaced: steps a second",
    "forward": "A network [64, 64], NumPy in and NumPy out",
    "actor": "Action, log-probability and value, two networks [64, 64]",
}
HEADLINES = (
    Headline(
        "your own PyTorch update, Q-network [64], batch 32, 32 in one call", "update",
        replace(SMALL, updates=32).label, FUSE, ((EAGER, "eager PyTorch"),), "further",
    ),
    Headline(
        "your own policy acting: action, log-probability, value", "actor",
        "one observation", ACTOR, ((CATEGORICAL, "PyTorch"),), "further",
    ),
    *(
        Headline(program.label, "program", program.label, AFTER, ((BEFORE, "before"),), "own")
        for program in (*PROGRAMS, *ADAPTERS)
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    contest = Contest(result, Budget(2e-3, total_s=0.3 if options.quick else 3.0), say)
    torch.set_num_threads(options.threads)
    result.settings |= {"optimizer": "Adam", "learning_rate": plain.RATE}
    for case in list(FASTER)[:1] if options.quick else FASTER:
        measure_update(case, contest)
    for rows in (1,) if options.quick else (1, 4, 16, 64, 256):
        contest.run("forward", Acting(rows), FORWARDS, partial(judge_one, FORWARD, MODULE))
        contest.run("actor", Acting(rows), ACTORS, partial(judge_one, ACTOR, CATEGORICAL))
    measure_first(contest)
    for case, contenders in in_place.QUICK_CASES if options.quick else in_place.CASES:
        contest.run("in_place", case, contenders, judge_in_place)
    for program in PROGRAMS[:1] if options.quick else PROGRAMS:
        measure_program(program, contest, quick=options.quick)
        if program.name in plain.PARTS:
            measure_parts(program, contest, quick=options.quick)
    for program in ADAPTERS[:1] if options.quick else ADAPTERS:
        measure_program(program, contest, quick=options.quick)
        measure_parts(program, contest, quick=options.quick)
    measure_program(PROGRAMS[0], contest, quick=options.quick, cores=2)
    for replacement in REPLACEMENTS[:1] if options.quick else REPLACEMENTS:
        measure_replacement(replacement, contest, quick=options.quick)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: a table for each section."""
    return [
        grid("one update", section(result, "update"), "case", "contender"),
        grid("the first call", section(result, "first")),
        grid("whole program", section(result, "program"), "case", "contender"),
        *(
            grid(head, section(result, name), "case", "contender")
            for name, head in (("where", "a step of"), ("two_cores", "on two cores"))
            if section(result, name)
        ),
        grid("one call in place", section(result, "in_place"), "case", "contender"),
        grid("one function replaced", section(result, "only_the_function"), "case", "contender"),
        grid("forward", section(result, "forward")),
        grid("actor", section(result, "actor")),
    ]


# --- updates -------------------------------------------------------------------------------------


@cache
def load_kernels() -> None:
    """Make some updates elsewhere: the second of a process loads a kernel, which takes long.

    The harness would take that for the usual time, and then time single calls on cold caches.
    """
    for _ in range(2):
        call = _fuse(SMALL)
        call.run()
        call.run()


def measure_update(case: Updates, contest: Contest) -> None:
    load_kernels()
    contest.run("update", case, UPDATES, partial(judge_update, case))


def judge_update(case: Updates, rows: Rows) -> list[Measurement]:
    rows = [per_item(row, case.updates) for row in rows]
    return attach(rows, FUSE, as_fast(rows, FUSE, {EAGER: FASTER[case]} if case in FASTER else {}))


def _fuse(case: Updates) -> Call:
    net, *others = case.modules()
    optimizer = torch.optim.Adam(net.parameters(), lr=plain.RATE, fused=True)
    step = ll.fuse(case.loss, net, optimizer, max_gradient_norm=case.max_norm)
    if case.updates == 1:
        batch = {name: x[0] for name, x in case.rows.items()}
        return Call(lambda: step(batch, *others), lambda _: plain.as_vector(net))
    many = partial(step.many, case.rows, *others, indices=case.indices)
    return Call(many, lambda _: plain.as_vector(net))


UPDATES = (
    Contender(FUSE, "loopless", "ours", _fuse, plain.TOLERANCE),
    Contender(EAGER, "torch", "reference", plain.eager, plain.TOLERANCE),
)


def measure_first(contest: Contest) -> None:
    """Measure the first call of `fuse` in a fresh process."""
    row = Measurement("first", SMALL.label, FUSE, "loopless", "ours", unit="s")
    row = contest.measure(row, partial(child_number, "first"))
    limit = at_most(FIRST_CALL_S, row.value, f"{FIRST_CALL_S:g} s")
    contest.keep([replace(row, targets=(limit,))])


# --- acting --------------------------------------------------------------------------------------


def judge_one(ours: str, theirs: str, rows: Rows) -> list[Measurement]:
    """Judge acting for one observation; other rows are for information."""
    factor = {FORWARD: FORWARD_FACTOR, ACTOR: ACTOR_FACTOR}[ours]
    single = rows[0].case == Acting(1).label
    return attach(rows, ours, as_fast(rows, ours, {theirs: factor}) if single else [])


# --- whole programs ------------------------------------------------------------------------------


def measure_program(program: Program, contest: Contest, *, quick: bool, cores: int = 1) -> None:
    """Run the programs before and after, and judge what was promised on one core."""
    name = "program" if cores == 1 else "two_cores"
    before = Measurement(name, program.label, BEFORE, "torch", "reference", unit="steps/s")
    after = replace(before, contender=AFTER, library="loopless", role="ours")
    runs = [(before, (f"{program.name}_before",)), (after, (f"{program.name}_after",))]
    rows = measure_in_turn(runs, program, contest, quick=quick, cores=cores)
    factor = program.factor if cores == 1 else None
    targets = as_fast(rows, AFTER, {BEFORE: factor}) if factor else beside(rows, AFTER, [BEFORE])
    if cores == 1 and program.name in HOPES:
        targets = [*targets, *as_fast(rows, AFTER, {BEFORE: HOPES[program.name]})]
    contest.keep(attach(rows, AFTER, targets))


def measure_parts(program: Program, contest: Contest, *, quick: bool) -> None:
    """Time the parts of a program before and after, and state what it could gain at most."""
    steps = str(program.quick_steps if quick else program.steps)
    totals: dict[str, float] = {}
    for which in ("before", "after"):
        case = f"{program.name} {which}"
        seconds = child_number("parts", program.name, which, steps)
        totals[which] = sum(seconds.values())
        row = Measurement("where", case, "", "torch", "reference", samples=1)
        if which == "after":
            row = replace(row, library="loopless", role="ours")
        rows = [replace(row, contender=part, value=value) for part, value in seconds.items()]
        if which == "after":
            left = seconds[plain.ENVIRONMENT] + seconds[plain.REST]
            most = stated(totals["before"] / left, "× gained if the rest took no time")
            rows = attach(rows, plain.ENVIRONMENT, [most])
        contest.keep(rows)


def measure_replacement(replacement: Replacement, contest: Contest, *, quick: bool) -> None:
    """Run a program with one function replaced, and state what it gained."""
    program, runs = replacement.program, []
    for name, patch in replacement.variants:
        ours = name == in_place.OURS
        row = Measurement(
            "only_the_function", program.label, name, "loopless" if ours else "torch",
            "ours" if ours else "reference", unit="steps/s",
        )  # fmt: skip
        runs.append((row, (f"{program.name}_before", patch)))
    contest.keep(judge_in_place(measure_in_turn(runs, program, contest, quick=quick)))


def judge_in_place(rows: Rows) -> list[Measurement]:
    """State how many times as fast as the original the others are."""
    others = [row.contender for row in rows if row.contender != in_place.ORIGINAL]
    for name in others:
        rows = attach(rows, name, beside(rows, name, [in_place.ORIGINAL]))
    if rows[0].case == in_place.SMALL_ROLLOUT.label:
        fast = as_fast(rows, in_place.OURS, {in_place.ORIGINAL: SMALL_ROLLOUT_FACTOR})
        rows = attach(rows, in_place.OURS, fast)
    if rows[0].case == in_place.Storing().label:
        seconds = values(rows)
        slower = ratio(seconds[in_place.OURS], seconds[in_place.ORIGINAL])
        limit = at_most(SLOWER_ADD, slower, f"{SLOWER_ADD:g} × as long as {in_place.ORIGINAL}")
        rows = attach(rows, in_place.OURS, [limit])
    return list(rows)


def measure_in_turn(
    runs: list[tuple[Measurement, tuple[str, ...]]],
    program: Program,
    contest: Contest,
    *,
    quick: bool,
    cores: int = 1,
) -> list[Measurement]:
    """Run programs in turn, each in processes of its own, and take the medians.

    A run is its row, the name of the example and perhaps the function to replace in it.
    """
    steps, repeats = (program.quick_steps, 1) if quick else (program.steps, REPEATS)
    rounds = [
        [contest.measure(row, partial(child_number, name, str(steps), *patch, cores=cores))
         for row, (name, *patch) in runs]
        for _ in range(repeats)
    ]  # fmt: skip
    return [middle_of(same) for same in zip(*rounds, strict=True)]


def middle_of(rows: Rows) -> Measurement:
    """Return the row with the median number, or the first that failed."""
    failed = [row for row in rows if row.value is None]
    numbers = [row.value for row in rows if row.value is not None]
    if failed:
        return failed[0]
    return replace(rows[0], value=statistics.median(numbers), samples=len(numbers))


def child_number(*words: str, cores: int = 1) -> Any:
    """Return the number, or numbers, that this module prints in a child on so many cores."""
    limits: dict[str, Any] = {"environment": one_thread()}
    if cores > 1:
        limits = {"environment": unlimited(), "cores": range(os.cpu_count() or 1)[-cores:]}
    printed = run_child("suites.own_code.suite", *words, **limits)[1]
    return json.loads(printed.splitlines()[-1])


def first_call() -> float:
    """Return the seconds of `fuse` and its first call, PyTorch and JAX being imported."""
    import jax  # noqa: F401

    case = SMALL
    case.modules()
    start = time.perf_counter()
    _fuse(case).run()
    return time.perf_counter() - start


def run_program(name: str, steps: int, patch: str = "") -> float:
    """Return the steps a second of one of the examples, perhaps with one function replaced."""
    names = read_program(name)
    if patch:
        originals.patch(names, patch)
    return (names.get("train") or names["run"])(steps, 0)[0]


def read_program(name: str) -> dict[str, Any]:
    """Return the names of one of the examples; PyTorch has as many threads as there are cores."""
    torch.set_num_threads(cores())
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def time_parts(name: str, which: str, steps: str) -> dict[str, float]:
    """Return the seconds a step of each part of one of the examples."""
    names = read_program(f"{name}_{which}")
    program = names.get("train") or names["run"]
    if name == "sb3_ppo":
        program.__globals__["Acting"] = plain.acting_of_sb3(ours=which == "after")
    return plain.seconds_of_parts(program, plain.PARTS[name], int(steps))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "parts":
        print(json.dumps(time_parts(words[0], words[1], words[2])))
    else:
        number = first_call() if what == "first" else run_program(what, int(words[0]), *words[1:])
        print(json.dumps(number))
