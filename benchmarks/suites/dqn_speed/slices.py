"""What is trained: CartPole-v1, by DQN or by PPO, with the same settings for all contenders.

A call is a slice: so many steps of a run that never ends. The check is that a slice makes as many
gradient steps as the settings say. `Slices` makes such calls of our trainers, `Worker` makes them
in another process, and `measure_native` races them with and without our native code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from loopless.arrays.xla_cpu import VARIABLE
from loopless.bench.contest import Call, Contender, Contest, Judge, Verdict
from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, as_rate, attach, beside, ratio, speeds, stated
from loopless.train.dqn.config import DQN
from loopless.train.ppo.config import PPO
from suites.processes import command_line, one_thread, unlimited, use_cores
from suites.q_learning.peers import BASELINES, SBX
from suites.q_learning.updates import Rules

ENV = "CartPole-v1"
EAGER = "PyTorch, eager loop"
BUFFER, STARTS = 10_000, 1_000
EPSILON = 0.05  # from the start on: random actions cost less than chosen ones
TARGET_EVERY = 500
FOREVER = 1_000_000_000  # steps: the run is sliced until the clock is satisfied
RULES = Rules(double=False, rate=2.5e-4)
PPO_RATE = 3e-4


class Slice:
    """What the cases of all trainers share: `steps` in a call, and a check of gradient steps."""

    trainer: ClassVar[str]
    steps: int

    @property
    def label(self) -> str:
        raise NotImplementedError

    @property
    def gradient_steps(self) -> int:
        """Return the gradient steps of one slice."""
        raise NotImplementedError

    def config(self, **changes: Any) -> Any:
        """Return the settings for our trainer."""
        raise NotImplementedError

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Check that a slice made as many gradient steps as it should."""
        made = call.read(output)
        if made == self.gradient_steps:
            return Verdict()
        return Verdict(f"{made} gradient steps in {self.steps} steps, not {self.gradient_steps}")


@dataclass(frozen=True)
class Training(Slice):
    """DQN: each `every` steps it draws `updates` batches, with `repeats` gradient steps on each."""

    trainer: ClassVar[str] = "dqn"

    steps: int
    hidden: tuple[int, ...] = (120, 84)
    batch: int = 128
    every: int = 10
    updates: int = 1
    repeats: int = 1

    @property
    def label(self) -> str:
        count = self.updates * self.repeats
        what = "1 update" if count == 1 else f"{count} updates"
        return f"{list(self.hidden)}, batch {self.batch}, {what} in {self.every} steps"

    @property
    def gradient_steps(self) -> int:
        return self.steps // self.every * self.updates * self.repeats

    def config(self, **changes: Any) -> DQN:
        return DQN(
            **{
                "env": ENV, "steps": FOREVER, "hidden": self.hidden, "batch_size": self.batch,
                "train_every": self.every, "updates": self.updates, "repeats": self.repeats,
                "buffer_size": BUFFER, "learning_starts": STARTS, "target_every": TARGET_EVERY,
                "explore_start": EPSILON, "explore_end": EPSILON, "learning_rate": RULES.rate,
                "gamma": RULES.gamma, "loss": "huber", "max_gradient_norm": RULES.max_norm,
                "log_every": self.steps, "eval_every": 0,
            } | changes
        )  # fmt: skip


@dataclass(frozen=True)
class PPOTraining(Slice):
    """PPO: rollouts of `envs` × `horizon` steps, `epochs` × `minibatches` gradient steps on each.

    Everything else is as our trainer and Stable-Baselines3 have it by default, except that the
    learning rate is constant.
    """

    trainer: ClassVar[str] = "ppo"

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


def on_two_cores(stack: ExitStack) -> list[Contender]:
    """Return contenders that train in a process with two cores each, which `stack` ends."""

    def contender(name: str, note: str, **changes: Any) -> Contender:
        def prepare(case: Slice) -> Call:
            return Call(stack.enter_context(Worker(case, changes)), int)

        note = f"a process of its own on two cores, threads not limited; {note}"
        return Contender(name, "loopless", "ours", prepare, note=note)

    return [
        contender(OVERLAPPED, "acts with weights one call old", mode="hosted", overlap=True),
        contender(TOGETHER_ON_TWO, TOGETHER_NOTE, mode="compiled", seeds=SEEDS),
    ]


IN_HOST = Contender(HOSTED, "loopless", "ours", partial(_sliced, mode="hosted"))
CONTENDERS = (
    IN_HOST,
    Contender(COMPILED, "loopless", "ours", partial(_sliced, mode="compiled")),
    Contender(
        TOGETHER,
        "loopless",
        "ours",
        partial(_sliced, mode="compiled", seeds=SEEDS),
        note=TOGETHER_NOTE,
    ),
)


CORES = 2
PATIENCE_S = 30


class Worker:
    """A run in a child; a call makes a slice there. Use it in a `with`, which ends the child.

    The case may be of any suite, if it has a `trainer` and a method `config(**changes)`. By default
    the child has two cores and as many threads as it likes. With `native`, the value of
    LOOPLESS_NATIVE, it has one core and one thread.
    """

    def __init__(self, case: Any, changes: dict[str, Any], native: str | None = None) -> None:
        names = type(case).__module__, type(case).__name__
        cores = CORES if native is None else 1
        request = json.dumps([*names, _plain(case), changes, cores])
        environment = unlimited() if native is None else one_thread() | {VARIABLE: native}
        self._child = subprocess.Popen(
            command_line("suites.dqn_speed.slices", request),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
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

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plain(case: Any) -> dict[str, Any]:
    """Return the fields of a case that JSON can hold; all others have their defaults."""
    given = {field.name: getattr(case, field.name) for field in fields(case)}
    return {
        name: value for name, value in given.items() if isinstance(value, int | float | str | tuple)
    }


def main(text: str) -> None:
    module, name, given, changes, cores = json.loads(text)
    use_cores(cores)
    case = getattr(import_module(module), name)(**given | {"hidden": tuple(given["hidden"])})
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
    return [
        as_rate(row, case.steps * (SEEDS if row.contender in AGENTS else 1), "steps/s")
        for row in rows
    ]


def judge_steps(case: Slice, rows: Rows, factors: Factors) -> list[Measurement]:
    rows = as_rates(case, rows)
    speed = speeds(rows)
    for name, factor in factors.items():
        others = (EAGER,) if factor else (BASELINES, SBX, EAGER)
        targets = as_fast(rows, name, dict.fromkeys((BASELINES, SBX), factor)) if factor else []
        rows = attach(rows, name, [*targets, *beside(rows, name, others)])
    for name in AGENTS:
        gain = ratio(speed.get(name), speed.get(COMPILED))
        rows = attach(rows, name, [stated(gain, f"× as fast as {SEEDS} runs in turn")])
    return list(rows)


def race_slices(case: Slice, others: Sequence[Contender], judge: Judge, contest: Contest) -> None:
    """Race our ways to train against others, on one core unless a contender's name says two."""
    contenders = [*CONTENDERS, *others]
    with ExitStack() as stack:
        if (os.cpu_count() or 1) > 1:
            contenders[1:1] = on_two_cores(stack)
        contest.run("steps", case, contenders, judge)


def number_row(section: str, case: str, name: str, library: str, unit: str) -> Measurement:
    """Return an empty row for a single number that is to be measured."""
    role = "ours" if library == "loopless" else "peer"
    return Measurement(section, case, name, library, role, unit=unit)


NATIVE, PLAIN_XLA = "loopless, compiled", "plain XLA"
NATIVE_PARTS = {NATIVE: "1", PLAIN_XLA: "0"}  # what LOOPLESS_NATIVE is set to
NATIVE_TITLE = "Our product against plain XLA: steps a second on one core"


def measure_native(
    case: Any, contest: Contest, steps: int, wrap: Callable[..., Call], **changes: Any
) -> None:
    """Race a trainer with and without our native code, each in a process of its own."""
    with ExitStack() as stack:

        def contender(name: str, setting: str) -> Contender:
            def prepare(case: Any) -> Call:
                return wrap(case, stack.enter_context(Worker(case, changes, setting)))

            role = "ours" if name == NATIVE else "yardstick"
            return Contender(name, "loopless", role, prepare, 1e-4, f"LOOPLESS_NATIVE={setting}")

        contenders = [contender(*pair) for pair in NATIVE_PARTS.items()]
        contest.run("native", case, contenders, partial(judge_native, steps))


def judge_native(steps: int, rows: Rows) -> Rows:
    """State how many times as fast training is with our native code as without."""
    rows = [as_rate(row, steps, "steps/s") for row in rows]
    others = [name for name in NATIVE_PARTS if name != NATIVE]
    return attach(rows, NATIVE, beside(rows, NATIVE, others))


if __name__ == "__main__":
    main(sys.argv[1])
