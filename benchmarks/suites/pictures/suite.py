"""The suite `pictures`: DQN and PPO on pictures against Stable-Baselines3, and memory of a buffer.

The environments in `worlds.py` show random pictures and cost next to nothing, so that acting and
learning are measured. The network is that of Mnih et al. 2015 for both libraries, with the same
settings (`peers.py`). Every contender trains in a process of its own, on one core or two.
`Pixels-v0` is compiled, and raced against the same program with JAX's own gradients of
convolutions, as it was before they were written for loops.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Contest
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_most, attach
from loopless.bench.timing import Budget
from loopless.process import peak_bytes
from loopless.train.dqn.config import DQN
from loopless.train.ppo.config import PPO
from pages import Lines, grid, section
from suites.dqn_speed.slices import FOREVER, Slices, Worker, check_gradient_steps
from suites.pictures import peers, worlds
from suites.processes import jax, run_child, use_cores
from suites.promises import as_rates
from suites.q_learning.peers import BASELINES

MODULE = "suites.pictures.suite"
ONE, TWO = "loopless", "loopless, two cores"
BASELINES_TWO = f"{BASELINES}, two cores"
NEW, OLD = "loopless, compiled", "with JAX's own gradients"
LEARNING_RATE = 1e-4
HIDDEN = (512,)


def by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


@dataclass(frozen=True)
class Training:
    """A slice of so many `steps` of DQN or PPO on pictures of one `shape`."""

    trainer: str
    shape: tuple[int, ...]
    steps: int
    check = check_gradient_steps

    @property
    def label(self) -> str:
        what = "PPO, 8 envs × 32 steps, 4 × 4 updates of 64"
        what = what if self.trainer == "ppo" else "DQN, a batch of 32 every 4 steps"
        return f"{what}, {' × '.join(map(str, self.shape))}"

    @property
    def gradient_steps(self) -> int:
        return self.steps // 256 * 16 if self.trainer == "ppo" else self.steps // 4

    def config(self, **changes: Any) -> DQN | PPO:
        common: dict[str, Any] = {
            "env": worlds.IDS[self.shape], "mode": "hosted", "steps": FOREVER, "hidden": HIDDEN,
            "activation": "relu", "learning_rate": LEARNING_RATE, "log_every": self.steps,
            "eval_every": 0, "max_gradient_norm": 0.5,
        }  # fmt: skip
        if self.trainer == "ppo":
            options: dict[str, Any] = {"envs": 8, "horizon": 32, "epochs": 4, "minibatches": 4}
            options["learning_rate_end"] = LEARNING_RATE
            return PPO(**common | options | changes)
        options = {
            "batch_size": 32, "train_every": 4, "buffer_size": 2_000, "learning_starts": 200,
            "target_every": 1_000, "explore_start": 0.05, "explore_end": 0.05, "loss": "huber",
        }  # fmt: skip
        return DQN(**common | options | changes)


@dataclass(frozen=True)
class Pixels:
    """A slice of DQN on the compiled grid that is seen as a picture."""

    steps: int
    trainer: str = "dqn"
    check = check_gradient_steps
    label = "Pixels-v0, 4 envs, a batch of 32 every 4 steps"

    @property
    def gradient_steps(self) -> int:
        return self.steps // 4

    def config(self, **changes: Any) -> DQN:
        return DQN(
            env="loopless/Pixels-v0", mode="compiled", steps=FOREVER, envs=4, train_every=4,
            batch_size=32, hidden=(128,), double=True, loss="huber", buffer_size=2_000,
            learning_starts=200, explore_start=0.05, explore_end=0.05, log_every=self.steps,
            eval_every=0, **changes,
        )  # fmt: skip


SHAPES = worlds.STACKED_SHAPE, worlds.COLORED_SHAPE
CASES = (
    *(Training("ppo", shape, 256) for shape in SHAPES),
    *(Training("dqn", shape, 128) for shape in SHAPES),
)
FASTER: dict[str, Mapping[str, Mapping[str, float]]] = {
    "ppo": {ONE: {BASELINES: 1.1}, TWO: {BASELINES_TWO: 1.0}},
    "dqn": {ONE: {BASELINES: 1.5}, TWO: {BASELINES_TWO: 1.0}},
}
LEAST_DQN = 1.0
COMPILED_FASTER = 5.0
PIXELS = Pixels(2_000)
TRANSITIONS = 100_000
BUFFER_MB, ABOVE_MB = 750.0, 900.0

TITLES = {
    "steps": "Learning from pictures: steps a second",
    "compiled": "A compiled grid that is seen as a picture: steps a second",
    "memory": "Memory of 100,000 transitions of stacked 84 × 84 × 4 pictures",
}
HEADLINES = tuple(
    Headline(f"{case.trainer.upper()} on pictures {by(case.shape)}, hosted", "steps",
             case.label, ONE, ((BASELINES, BASELINES),))
    for case in CASES
)  # fmt: skip
KINDS: Mapping[str, tuple[str, int]] = {
    ONE: ("ours", 1), TWO: ("ours", 2), BASELINES: ("peer", 1), BASELINES_TWO: ("peer", 2),
    NEW: ("ours", 1), OLD: ("old", 1),
}  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(0.1, total_s=3.0) if options.quick else Budget(0.5, total_s=12.0)
    contest = Contest(result, budget, say, options.peers)
    result.settings |= {"environments": "random pictures, which cost next to nothing"}
    cases = CASES[:1] if options.quick else CASES
    for case in cases:
        race("steps", case, (ONE, BASELINES, TWO, BASELINES_TWO), partial(judge, case), contest)
    race("compiled", PIXELS, (NEW, OLD), judge_compiled, contest)
    if not options.quick:
        measure_memory(contest)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: hosted steps, compiled steps, memory."""
    return [
        grid("pictures", section(result, "steps")),
        grid("compiled", section(result, "compiled")),
        grid("memory", section(result, "memory"), "case", "contender"),
    ]


def race(title: str, case: Any, names: Any, judge: Callable, contest: Contest) -> None:
    """Race contenders, each in a process of its own."""
    with ExitStack() as stack:
        contest.run(title, case, [contender(stack, name) for name in names], judge)


def contender(stack: ExitStack, name: str) -> Contender:
    kind, cores = KINDS[name]
    library = "stable-baselines3" if kind == "peer" else "loopless"
    role = "peer" if kind == "peer" else "ours" if kind == "ours" else "yardstick"

    def prepare(case: Any) -> Call:
        changes = {"kind": kind, "cores": cores}
        return Call(stack.enter_context(Worker(case, changes, MODULE)), int)

    return Contender(name, library, role, prepare, note=f"a process of its own, cores: {cores}")


def judge(case: Training, rows: Rows) -> list[Measurement]:
    rows = as_rates(rows, lambda _: case.steps, "steps/s")
    for name, factors in FASTER[case.trainer].items():
        targets = as_fast(rows, name, factors)
        if case.trainer == "dqn" and name == ONE:
            targets = [*as_fast(rows, name, {BASELINES: LEAST_DQN}), *targets]
        rows = attach(rows, name, targets)
    return list(rows)


def judge_compiled(rows: Rows) -> list[Measurement]:
    rows = as_rates(rows, lambda _: PIXELS.steps, "steps/s")
    return attach(rows, NEW, as_fast(rows, NEW, {OLD: COMPILED_FASTER}))


def measure_memory(contest: Contest) -> None:
    """Fill a buffer of stacked pictures in a child, and learn from it."""
    label = f"{TRANSITIONS:,} transitions, then updates"
    numbers: dict[str, float] = {}

    def measured(name: str) -> float:
        if not numbers:
            numbers.update(json.loads(run_child(MODULE, "memory")[1].splitlines()[-1]))
        return numbers[name]

    for name, most in (("buffer", BUFFER_MB), ("process above the buffer", ABOVE_MB)):
        row = Measurement("memory", label, name, "loopless", "ours", unit="MB")
        row = contest.measure(row, partial(measured, name))
        target = at_most(most, row.value, f"{most:g} MB")
        contest.keep(attach([row], name, [target]))


# --- in a child ----------------------------------------------------------------------------------


def main(text: str) -> None:
    """Make slices of the case in `text`, one for each line of the input."""
    _, values, changes = json.loads(text)
    use_cores(changes["cores"])
    if "shape" in values:
        case: Any = Training(**values | {"shape": tuple(values["shape"])})
    else:
        case = Pixels(**values)
    if changes["kind"] == "peer":
        advance = peers.slices(case, changes["cores"])
    else:
        from loopless.train import commands

        commands.prepare(case.config())
        if changes["kind"] == "old":
            use_gradients_of_jax()
        advance = Slices(case)
    print(0, flush=True)
    for _ in sys.stdin:
        print(advance(), flush=True)


def use_gradients_of_jax() -> None:
    """Let networks convolve all pictures at once, and JAX find the gradients."""
    conv: Any = import_module("loopless.nets.conv")

    def convolve(x: Any, kernel: Any, window: Any) -> Any:
        labels = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, window.stride, window.padding, dimension_numbers=labels
        )

    conv.convolve, conv.in_parts = convolve, lambda function, x: function(x)


def fill_memory() -> dict[str, float]:
    """Return, in bytes, a buffer of transitions, and what the process had at most above it."""
    from loopless.runs.progress.clock import Clock
    from loopless.train import commands, dqn

    config: Any = Training("dqn", worlds.STACKED_SHAPE, 128).config(buffer_size=TRANSITIONS)
    commands.prepare(config)
    run = dqn.make(config)
    agent, block = run.agent, 1_000
    add = jax.jit(agent.algorithm.replay.add, donate_argnums=0)
    for start in range(0, TRANSITIONS, block):
        learner, replay = agent.state
        agent.state = learner, add(replay, transitions(start, block))
    assert int(agent.replay.size) == TRANSITIONS
    for _ in range(4):
        run.advance(Clock())
    size = agent.algorithm.replay.nbytes
    run.close()
    return {"buffer": size, "process above the buffer": peak_bytes() - size}


def transitions(start: int, count: int) -> dict[str, np.ndarray]:
    """Return consecutive transitions of one long episode, whose frames are all different."""
    rng = np.random.default_rng(start)
    frames = rng.integers(0, 256, (count + 1, *worlds.STACKED_SHAPE[:2]), dtype=np.uint8)
    numbers = np.arange(count)[:, None] - np.arange(worlds.STACK - 1, -1, -1)
    obs = np.moveaxis(frames[np.maximum(numbers, 0)], 1, -1)
    successors = np.concatenate([obs[..., 1:], frames[1:][..., None]], -1)
    flags = np.zeros(count, bool)
    return {
        "obs": obs, "next_obs": successors, "action": np.zeros(count, np.int32),
        "reward": np.ones(count, np.float32), "terminated": flags, "truncated": flags,
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        print(json.dumps(fill_memory()))
    else:
        main(sys.argv[1])
