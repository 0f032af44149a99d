"""Runs, as `runs.session` and the commands drive them, whatever the trainer is.

`CompiledRun` drives a trainer whose environments are compiled into its program, `HostedRun` one
that acts in Gymnasium environments. Both are given an object with the functions of the trainer
(`Program`, `HostedAgent`) and do what is not the algorithm: count events, call the compiled
functions chunk by chunk, evaluate, save and restore.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress.clock import Clock
from loopless.train.engine import episodes, health
from loopless.train.engine.agents import Axes, advance_agents, map_agents
from loopless.train.engine.players import evaluation_envs, first_episodes
from loopless.train.engine.settings import Settings, as_program, traced_settings

if TYPE_CHECKING:  # a compiled run needs no Gymnasium
    from loopless.envs import HostedEnvs

# (state, settings, key, first event, number of events) → state, (episodes, report)
Chunk = Callable[[Any, Settings, jax.Array, Any, Any], tuple]


class Run:
    """What runs of all trainers share: counting events, and describing failure and result.

    `chunks` says how many events come next (`schedules.Chunks`, or the like).
    """

    def __init__(self, config: Any, chunks: Any, steps_per_event: int) -> None:
        self.config, self.chunks, self.steps_per_event = config, chunks, steps_per_event
        self.event, self.total = 0, chunks.events * steps_per_event
        self.episodes: Any = 0

    @property
    def step(self) -> int:
        return self.event * self.steps_per_event

    @property
    def learner(self) -> Any:
        """All that learning changes; it has the counters that `health.judge` keeps."""
        raise NotImplementedError

    def evaluate(self) -> Mapping[str, Any]:
        """Return the metrics of an evaluation, for trainers with a setting `eval_every`."""
        raise NotImplementedError

    def failure(self) -> str | None:
        """Return where learning stopped because a number was not finite; None if it did not."""
        return health.failure_message(self.learner, self.agent_name)

    def agent_name(self, number: int) -> str:
        """Return the name of one agent of several."""
        return f"seed {self.config.seed + number}"

    def arrays(self) -> Mapping[str, Any]:
        """Return all arrays of a checkpoint by name."""
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        """Return all that a checkpoint saves, with what the policy acts by under "weights"."""
        raise NotImplementedError

    def write_inputs(self, folder: Path) -> None:
        """Write into the folder of a new run what a resume needs beside checkpoints: nothing."""

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """Return the result in words, from the last metrics; None if they do not tell."""
        score = last.get("eval_return", last.get("return_mean"))
        if score is None:
            return None
        shown = np.round(np.atleast_1d(score).astype(float), 1) + 0.0  # no −0.0
        return f"Return {', '.join(f'{value:.1f}' for value in shown)}."

    def close(self) -> None:
        """Release what the run holds: here, nothing."""


class Program(Protocol):
    """The functions of a compiled trainer, a dataclass with an algorithm, which has the config.

    Its state has a field `learner`.
    A learner's `acting()` returns the arrays that its policy acts with, and `with_acting` puts them
    back.
    """

    def init(self, key: jax.Array) -> Any:
        """Return the state before the first event."""
        ...

    def compile(self, spread: Callable[[Callable, Axes], Callable], learning: bool) -> Chunk:
        """Return the compiled chunk, of events that learn or of those that only collect.

        `spread(function, axes)` turns a function of one agent into a function of all agents.
        """
        ...

    def evaluate(self, acting: Mapping[str, jax.Array], key: jax.Array) -> tuple:
        """Return the returns and lengths of episodes without exploration, and how many were cut."""
        ...

    def describe(self, state: Any, event: int, report: Any) -> dict[str, Any]:
        """Return a row of metrics from the state after `event` events, and from the last report."""
        ...


class CompiledRun(Run):
    """A run whose environments and learner are one program, with `config.seeds` agents in it."""

    def __init__(self, config: Any, program: Program, chunks: Any, steps_per_event: int) -> None:
        super().__init__(config, chunks, steps_per_event)
        self.program = program
        self.episodes = np.zeros((config.seeds,) if config.seeds > 1 else (), np.int64)
        keys = [jax.random.key(config.seed + i) for i in range(config.seeds)]
        self.key = keys[0] if config.seeds == 1 else jnp.stack(keys)
        if config.seeds == 1:
            map_, advance = _for_one_agent, _for_one_agent
        else:
            map_, advance = map_agents, advance_agents
        self.settings = traced_settings(config)
        init = _compile_quickly(map_(as_program(program, "init"), (0, None)))
        self.state = init(self.key, self.settings)
        self._evaluate = _compile_quickly(map_(self._play, (0, 0)))
        self.compiled = cache(partial(program.compile, advance))

    @property
    def learner(self) -> Any:
        return self.state.learner

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        """Train one chunk, and return its metrics."""
        events = self.chunks.after(self.event)
        with clock("learn"):
            chunk = self.compiled(self.chunks.is_learning(self.event))
            numbers = np.int32(self.event), np.int32(events)
            self.state, (ended, report) = chunk(self.state, self.settings, self.key, *numbers)
            jax.block_until_ready(self.state.learner)
        self.event += events
        with clock("log"):
            row = ended.metrics(self.episodes)
            self.episodes = row["episodes"]
            return row | self.program.describe(self.state, self.event, report)

    def evaluate(self) -> Mapping[str, Any]:
        """Return the metrics of episodes without exploration."""
        return episodes.evaluation_metrics(*self._evaluate(self.learner.acting(), self.key))

    def _play(self, acting: Mapping[str, jax.Array], key: jax.Array) -> tuple:
        return self.program.evaluate(acting, jax.random.fold_in(key, episodes.EVALUATION))

    def _tree(self) -> dict[str, Any]:
        acting, rest = split(self.learner)
        numbers = {"event": np.int64(self.event), "episodes": self.episodes}
        return {"weights": acting, "carry": self.state._replace(learner=rest), **numbers}

    def restore(self, checkpoint: Checkpoint) -> str:
        """Continue from a checkpoint; return in words what could not be restored: nothing."""
        tree = trees.unflatten(self._tree(), checkpoint.arrays)
        learner = tree["carry"].learner.with_acting(tree["weights"])
        self.state = tree["carry"]._replace(learner=learner)
        self.event, self.episodes = int(tree["event"]), tree["episodes"]
        return ""


LEVEL = "xla_backend_optimization_level"


def compile_chunk(function: Callable) -> Callable:
    """Return a jitted function for the program of a chunk, whose first argument is donated.

    On a CPU LLVM works at level 1, unless the user's XLA_FLAGS have a level: the program has the
    same bits and is as fast as at level 3, and compiles in four fifths of the time.
    """
    options = _on_cpu({} if LEVEL in os.environ.get("XLA_FLAGS", "") else {LEVEL: 1})
    return jax.jit(function, donate_argnums=0, compiler_options=options)


def _compile_quickly(function: Callable) -> Callable:
    """Return a jitted function for a program that runs seldom: XLA optimizes it little.

    It compiles in half the time, and takes half as long again to run.
    """
    options = _on_cpu({LEVEL: 1, "xla_cpu_use_fusion_emitters": False})
    return jax.jit(function, compiler_options=options)


def _on_cpu(options: dict[str, Any]) -> dict[str, Any] | None:
    return options if options and jax.default_backend() == "cpu" else None


def _for_one_agent(function: Callable, axes: Axes) -> Callable:
    return function


class HostedAgent(Protocol):
    """The functions of a trainer that acts in Gymnasium environments, and what they change."""

    envs: "HostedEnvs"
    learner: Any

    def start_chunk(self, event: int, events: int) -> None:
        """Prepare for `events` events from number `event` on."""
        ...

    def advance(self, event: int, end: int, learning: bool, clock: Clock) -> tuple:
        """Act and learn from event number `event` on, not beyond `end`.

        Returns how many events that were, the episodes that ended, and the report as an array.
        """
        ...

    def greedy_policy(self) -> Callable:
        """Return a policy that acts without exploration, by the current weights."""
        ...

    def describe(self, event: int, report: np.ndarray, learning: bool) -> dict[str, Any]:
        """Return a row of metrics after `event` events, from the mean report of the last ones."""
        ...

    def tree(self) -> dict[str, Any]:
        """Return all that a checkpoint saves of the agent, with its weights under "weights"."""
        ...

    def restore(self, tree: Mapping[str, Any], event: int) -> None:
        """Continue from a saved tree, with new episodes."""
        ...


class HostedRun(Run):
    """A run in Gymnasium environments on the host, whose learner is called between their steps."""

    def __init__(self, config: Any, agent: HostedAgent, chunks: Any, steps_per_event: int) -> None:
        super().__init__(config, chunks, steps_per_event)
        self.agent = agent
        self._evaluation_envs: HostedEnvs | None = None
        self._said, self._flattened = "", agent.envs.flattened

    @property
    def learner(self) -> Any:
        return self.agent.learner

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        """Train one chunk, and return its metrics."""
        agent, learning = self.agent, self.chunks.is_learning(self.event)
        end = self.event + self.chunks.after(self.event)
        reports, returns, lengths = [], [], []
        with clock("learn"):
            agent.start_chunk(self.event, end - self.event)
        while self.event < end:
            events, ended, report = agent.advance(self.event, end, learning, clock)
            self.event += events
            reports.append(report)
            returns.append(ended.episode_return)
            lengths.append(ended.episode_length)
        with clock("learn"):
            means = np.mean(np.vstack([np.asarray(report) for report in reports]), 0)
        with clock("log"):
            row = episodes.hosted_metrics(
                self.episodes, np.concatenate(returns), np.concatenate(lengths)
            )
            self.episodes = row["episodes"]
            return row | agent.describe(self.event, means, learning)

    def evaluate(self) -> Mapping[str, Any]:
        """Return the metrics of episodes without exploration."""
        config = self.config
        if self._evaluation_envs is None:
            self._evaluation_envs = evaluation_envs(config, config.eval_episodes, config.seed)
        self._evaluation_envs.restart(config.seed + episodes.EVALUATION)
        policy = self.agent.greedy_policy()
        envs, most = self._evaluation_envs, config.eval_max_steps
        return episodes.evaluation_metrics(*first_episodes(envs, policy, most))

    def _tree(self) -> dict[str, Any]:
        numbers = {"event": np.int64(self.event), "episodes": np.int64(self.episodes)}
        return self.agent.tree() | numbers

    def restore(self, checkpoint: Checkpoint) -> str:
        """Continue from a checkpoint; return in words what could not be restored."""
        tree = trees.unflatten(self._tree(), checkpoint.arrays)
        self.event, self.episodes = int(tree["event"]), int(tree["episodes"])
        self.agent.restore(tree, self.event)
        return "environments cannot be saved: their episodes were started anew"

    def remarks(self) -> list[str]:
        """Return once how observations are flattened, and where one was outside its space."""
        said, self._said = self._said, self.agent.envs.first_outside
        flattened, self._flattened = self._flattened, ""
        return [*filter(None, [flattened]), *([self._said] if self._said and not said else [])]

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """Return the result in words, and how many numbers were outside the observation space."""
        outside, text = self.agent.envs.outside, super().outcome(last)
        if not outside:
            return text
        return f"{text or ''} {outside:,} numbers were outside the observation space.".strip()

    def close(self) -> None:
        """Close the environments."""
        self.agent.envs.close()
        if self._evaluation_envs is not None:
            self._evaluation_envs.close()


def split(learner: Any) -> tuple[dict[str, jax.Array], Any]:
    """Return the acting arrays by name, and the learner without them, for a checkpoint."""
    acting = learner.acting()
    return acting, learner.with_acting(dict.fromkeys(acting))
