"""What is trained: CartPole-v1, by DQN or by PPO, with the same settings for all contenders.

A call is a slice: so many steps of a run that never ends. The check is that a slice makes as many
gradient steps as the settings say. `Slices` makes such calls of our trainers, `Worker` makes them
in another process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from loopless.bench.contest import Call, Contender, Contest, Verdict
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, attach, beside, ratio, speeds, stated
from loopless.bench.timing import Budget
from loopless.train.dqn.config import DQN
from loopless.train.ppo.config import PPO
from suites.processes import command_line, prepare_like_training, unlimited, use_cores
from suites.promises import as_rates as rates
from suites.q_learning.peers import BASELINES, SBX
from suites.q_learning.updates import Rules

ENV = "CartPole-v1"
REJAX, PUREJAXRL = "rejax", "PureJaxRL's form, written plainly"
BUFFER, STARTS = 10_000, 1_000
EPSILON = 0.05  # from the start on: random actions cost less than chosen ones
TARGET_EVERY = 500
FOREVER = 200_000_000  # steps: the run is sliced until the clock is satisfied
RULES = Rules(double=False, rate=2.5e-4)
PPO_RATE = 3e-4


def check_gradient_steps(case: Any, contender: Contender, call: Any, output: Any) -> Verdict:
    """Check that a slice made as many gradient steps as it should."""
    made = call.read(output)
    if made == case.gradient_steps:
        return Verdict()
    return Verdict(f"{made} gradient steps in {case.steps} steps, not {case.gradient_steps}")


@dataclass(frozen=True)
class Training:
    """DQN: each `every` steps it draws `updates` batches, with `repeats` gradient steps on each."""

    trainer: ClassVar[str] = "dqn"
    check = check_gradient_steps

    steps: int
    hidden: tuple[int, ...] = (120, 84)
    batch: int = 128
    every: int = 10
    updates: int = 1
    repeats: int = 1
    envs: int = 1

    @property
    def label(self) -> str:
        count = self.updates * self.repeats
        what = "1 update" if count == 1 else f"{count} updates"
        envs = f", {self.envs} envs" if self.envs > 1 else ""
        return f"{list(self.hidden)}, batch {self.batch}, {what} in {self.every} steps{envs}"

    @property
    def gradient_steps(self) -> int:
        return self.steps // self.every * self.updates * self.repeats

    def config(self, **changes: Any) -> DQN:
        return DQN(
            **{
                "env": ENV, "steps": FOREVER, "hidden": self.hidden, "batch_size": self.batch,
                "envs": self.envs, "train_every": self.every, "updates": self.updates,
                "repeats": self.repeats, "buffer_size": BUFFER, "learning_starts": STARTS,
                "target_every": TARGET_EVERY,
                "explore_start": EPSILON, "explore_end": EPSILON, "learning_rate": RULES.rate,
                "gamma": RULES.gamma, "loss": "huber", "max_gradient_norm": RULES.max_norm,
                "log_every": self.steps, "eval_every": 0,
            } | changes
        )  # fmt: skip


@dataclass(frozen=True)
class PPOTraining:
    """PPO: rollouts of `envs` × `horizon` steps, `epochs` × `minibatches` gradient steps on each.

    Everything else is as our trainer and Stable-Baselines3 have it by default, except that the
    learning rate is constant.
    """

    trainer: ClassVar[str] = "ppo"
    check = check_gradient_steps

    steps: int
    hidden: tuple[int, ...] = (64, 64)
    envs: int = 4
    horizon: int = 128
    epochs: int = 4
    minibatches: int = 4

    @property
    def label(self) -> str:
        what = f"{self.envs} envs × {self.horizon} steps, {self.epochs} × {self.minibatches}"
        return f"{list(self.hidden)}, {what} updates"

    @property
    def rows(self) -> int:
        """Return the steps of a rollout."""
        return self.envs * self.horizon

    @property
    def gradient_steps(self) -> int:
        return self.steps // self.rows * self.epochs * self.minibatches

    def config(self, **changes: Any) -> PPO:
        return PPO(
            **{
                "env": ENV, "steps": FOREVER, "hidden": self.hidden, "envs": self.envs,
                "horizon": self.horizon, "epochs": self.epochs, "minibatches": self.minibatches,
                "learning_rate": PPO_RATE, "learning_rate_end": PPO_RATE,
                "log_every": self.steps, "eval_every": 0,
            } | changes
        )  # fmt: skip


Slice = Training | PPOTraining
HOSTED, COMPILED = "loopless, hosted", "loopless, compiled"
SEEDS = 8
TOGETHER = f"loopless, compiled, {SEEDS} seeds in one program"
TOGETHER_ON_TWO = f"{TOGETHER}, on two cores"
OVERLAPPED = "loopless, hosted, --overlap on two cores"
TOGETHER_NOTE = "steps of all agents together"


class Slices:
    """A run past its warm-up; a call advances it by a chunk, and returns its gradient steps."""

    def __init__(self, case: Slice, **changes: Any) -> None:
        from loopless.runs.progress.clock import Clock
        from loopless.train import registry

        make = registry.trainer(case.trainer).make
        self.run, self.clock = make(case.config(**changes)), Clock()
        while not self():  # until a chunk has learned, and so has been compiled
            pass

    def __call__(self) -> int:
        before = self._made()
        self.run.advance(self.clock)
        return self._made() - before

    def _made(self) -> int:
        """Return the gradient steps so far of each agent; it is the same for all."""
        return int(np.max(self.run.learner.updates))


def _sliced(case: Slice, **changes: Any) -> Call:
    return Call(Slices(case, **changes), int)


CONTENDERS = tuple(
    Contender(name, "loopless", "ours", partial(_sliced, **changes), note=note)
    for name, changes, note in (
        (HOSTED, {"mode": "hosted"}, ""),
        (COMPILED, {"mode": "compiled"}, ""),
        (TOGETHER, {"mode": "compiled", "seeds": SEEDS}, TOGETHER_NOTE),
    )
)
IN_HOST = CONTENDERS[0]
ON_TWO_CORES = (
    (OVERLAPPED, {"mode": "hosted", "overlap": True}, "acts with weights one call old"),
    (TOGETHER_ON_TWO, {"mode": "compiled", "seeds": SEEDS}, TOGETHER_NOTE),
)


def in_workers(stack: ExitStack, name: str, changes: dict[str, Any], note: str) -> Contender:
    """Return a contender that trains in a process of its own, which `stack` ends."""

    def prepare(case: Slice) -> Call:
        return Call(stack.enter_context(Worker(case, changes)), int)

    return Contender(name, "loopless", "ours", prepare, note=note)


CORES = 2
PATIENCE_S = 30


class Worker(AbstractContextManager):
    """A run in a child; a call makes a slice there. Use it in a `with`, which ends the child.

    The child has two cores and as many threads as it likes, and runs the `main` of `module`.
    """

    def __init__(
        self, case: Any, changes: dict[str, Any], module: str = "suites.dqn_speed.slices"
    ) -> None:
        request = json.dumps([case.trainer, asdict(case), changes])
        self._child = subprocess.Popen(
            command_line(module, request),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=unlimited(),
        )  # fmt: skip
        try:
            self._answer()  # wait until it is ready
        except BaseException:
            self.close()
            raise

    def __call__(self) -> int:
        assert self._child.stdin
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._child.stdout
        if line := self._child.stdout.readline():
            return int(line)
        raise RuntimeError(f"the worker ended with exit code {self._child.wait(PATIENCE_S)}")

    def close(self) -> None:
        """Close the child's input, whereupon it ends; kill it if it does not."""
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe
            pipe.close()
        try:
            self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def __exit__(self, *_: object) -> None:
        self.close()


def main(text: str) -> None:
    trainer, values, changes = json.loads(text)
    use_cores(CORES)
    make = {"dqn": Training, "ppo": PPOTraining}[trainer]
    case = make(**values | {"hidden": tuple(values["hidden"])})
    from loopless.train import commands

    commands.prepare(case.config(**changes))
    slices = Slices(case, **changes)
    print(0, flush=True)
    for _ in sys.stdin:
        print(slices(), flush=True)


Factors = Mapping[str, float | None]  # times as fast as either library; None: only stated

AGENTS = (TOGETHER, TOGETHER_ON_TWO)


def as_rates(case: Slice, rows: Rows) -> list[Measurement]:
    """Convert times of slices to steps a second, of all agents together."""
    return rates(rows, lambda name: case.steps * (SEEDS if name in AGENTS else 1), "steps/s")


def judge_steps(case: Slice, rows: Rows, factors: Factors) -> list[Measurement]:
    rows = as_rates(case, rows)
    speed = speeds(rows)
    for name, factor in factors.items():
        others = BASELINES, SBX
        promised = as_fast(rows, name, dict.fromkeys(others, factor)) if factor else None
        rows = attach(rows, name, promised or beside(rows, name, others))
    for name in AGENTS:
        gain = ratio(speed.get(name), speed.get(COMPILED))
        rows = attach(rows, name, [stated(gain, f"× as fast as {SEEDS} runs in turn")])
    return list(rows)


NO_STRAW_MAN = 0.9  # of rejax's rate, at least, for the form that is written plainly


def judge_compiled(case: Slice, factors: Iterable[float], rows: Rows) -> list[Measurement]:
    """Judge that ours is so many times as fast as each compiled peer; the plain form is no foil."""
    rows = as_rates(case, rows)
    others = (REJAX, PUREJAXRL)
    targets = [x for each in factors for x in as_fast(rows, COMPILED, dict.fromkeys(others, each))]
    rows = attach(rows, COMPILED, targets or beside(rows, COMPILED, others))
    return attach(rows, PUREJAXRL, as_fast(rows, PUREJAXRL, {REJAX: NO_STRAW_MAN}))


def compiled_headline(trainer: str, case: Slice) -> Headline:
    """Return the headline of a compiled trainer beside whichever compiled peer is the fastest."""
    what = f"{trainer} on CartPole: {case.label}"
    return Headline(what, "compiled", case.label, COMPILED, (), "compiled")


def headlines(trainer: str, case: Slice) -> tuple[Headline, ...]:
    """Return the headlines of a trainer's suite: both modes beside both libraries."""
    modes = ("compiled", COMPILED), ("any Gymnasium environment", HOSTED)
    beside = (BASELINES, BASELINES), (SBX, SBX)
    return tuple(
        Headline(f"{trainer} on CartPole, {what}", "steps", case.label, ours, beside)
        for what, ours in modes
    )


def start(
    case: Slice, settings: dict[str, Any], options: Options, result: Result, say: Say
) -> Contest:
    """Prepare this process and note the settings; return a contest with long samples."""
    budget = Budget(sample_s=0.5, total_s=2.0) if options.quick else Budget(2.0, total_s=18.0)
    prepare_like_training(options.threads)
    result.settings |= settings | {"env": ENV, "steps_in_a_call": case.steps}
    result.settings["jax_async_dispatch"] = False
    return Contest(result, budget, say, options.peers)


def race_slices(
    case: Slice, others: Sequence[Contender], factors: Factors, contest: Contest
) -> None:
    """Race our ways to train against others, on one core unless a contender's name says two."""
    contenders = [*CONTENDERS, *others]
    with ExitStack() as stack:
        if (os.cpu_count() or 1) > 1:
            note = "a process of its own on two cores, threads not limited; "
            contenders[1:1] = [
                in_workers(stack, name, changes, note + more)
                for name, changes, more in ON_TWO_CORES
            ]
        contest.run("steps", case, contenders, partial(judge_steps, case, factors=factors))


def race_compiled(
    case: Slice, peers: Sequence[Contender], factors: Iterable[float], contest: Contest
) -> None:
    """Race our compiled mode against peers that compile their environments, too."""
    judge = partial(judge_compiled, case, factors)
    contest.run("compiled", case, [CONTENDERS[1], *peers], judge)


if __name__ == "__main__":
    main(sys.argv[1])
