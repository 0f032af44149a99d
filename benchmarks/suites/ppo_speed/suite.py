"""The suite `ppo_speed`: PPO against peers in steps a second, and how soon it solves CartPole.

It is built like `dqn_speed`, and uses its `slices.py`. The loop written plainly is in `plain.py`,
other libraries are in `peers.py`. The updates of one rollout are also timed in pieces, each a
program with the same shapes: returns are `gae` over a rollout; forward is the loss on every
minibatch of every epoch; the gradient is forward and backward. The rest of the whole is the
log-probabilities and values of the rollout, shuffling, and Adam.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Contest, Verdict
from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, attach, ratio, stated, values
from pages import Lines, grid, section
from suites.dqn_speed import slices
from suites.dqn_speed.slices import COMPILED, HOSTED, OVERLAPPED, PPOTraining
from suites.ppo_speed import peers, plain
from suites.ppo_speed.plain import CONTENDER as EAGER_LOOP
from suites.processes import jax, jnp, measure_numbers, run_and_read
from suites.promises import limit

SLICE, QUICK_SLICE = PPOTraining(5_120), PPOTraining(1_024)  # whole rollouts
SEEDS = 5
COMMAND = "loopless train ppo"
WHOLE, RETURNS, FORWARD, GRADIENT = "whole", "returns", "forward", "forward and backward"

TITLES = {
    "steps": "CartPole-v1 by PPO, learning as it goes: steps a second",
    "compiled": "Beside compiled peers: steps a second",
    "solve": "Seconds until CartPole-v1 is solved",
    "shares": "The updates of one rollout, and their pieces apart",
}
HEADLINES = (*slices.headlines("PPO", SLICE), slices.compiled_headline("PPO", SLICE))

FASTER: slices.Factors = {HOSTED: 6.0, COMPILED: 30.0, OVERLAPPED: None}
COMPILED_FACTORS = (1.6,)  # times as fast as each compiled peer
COMPILED_S, COMMAND_S = 5.0, 20.0
SOLVED = 475.0
EPISODES = 100  # of an evaluation
IN_A_ROW = 5  # evaluations: an early policy may succeed once by luck


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    case = QUICK_SLICE if options.quick else SLICE
    settings = peers.options(case) | {"n_envs": case.envs}
    contest = slices.start(case, settings, options, result, say)
    measure(case, contest)
    if not options.quick:
        measure_solve(contest)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: steps a second, seconds until solved, pieces of an update."""
    return [
        grid("CartPole-v1 by PPO", section(result, "steps")),
        grid("compiled whole", section(result, "compiled"), "case", "contender"),
        grid("until solved", section(result, "solve"), "case", "contender"),
        grid("updates of one rollout", section(result, "shares")),
    ]


def measure(case: PPOTraining, contest: Contest) -> None:
    """Race training, then time an update and its pieces, with short samples of short calls."""
    slices.race_slices(case, [*peers.CONTENDERS, EAGER_LOOP], FASTER, contest)
    slices.race_compiled(case, (peers.COMPILED, plain.COMPILED), COMPILED_FACTORS, contest)
    budget = contest.budget
    contest = contest.with_budget(sample_s=budget.sample_s / 10, total_s=budget.total_s / 6)
    contest.run("shares", Pieces(case), PIECES, state_shares)


def measure_solve(contest: Contest) -> None:
    seconds: list[float] = []

    def slowest() -> float:
        seconds.extend(time_compiled(seed) for seed in range(SEEDS))
        return max(seconds)

    label = f"a mean of {SOLVED:g} over {EPISODES} episodes, {IN_A_ROW} times "
    label += "in a row, compiled before"
    (row,) = measure_numbers(contest, "solve", label, "s", [(COMPILED, "loopless", slowest)])
    contest.keep([judge_compiled(row, seconds)])
    label = "the whole command, all cores, imports and compilation included"
    rows = measure_numbers(contest, "solve", label, "s", [(COMMAND, "loopless", time_command)])
    contest.keep(limit(rows, COMMAND_S, "s"))


def judge_compiled(row: Measurement, seconds: Sequence[float]) -> Measurement:
    """Judge the slowest seed; the row's value becomes the median over seeds."""
    if row.value is None:
        return limit([row], COMPILED_S, "s")[0]
    (row,) = limit([row], COMPILED_S, "s, the slowest seed")
    median, details = statistics.median(seconds), {"seconds": list(seconds)}
    return replace(row, value=median, samples=len(seconds), details=details)


def state_shares(rows: Rows) -> list[Measurement]:
    """State each piece's per cent of the whole; backward is the gradient less forward."""
    times = values(rows)
    forward, both = times.get(FORWARD), times.get(GRADIENT)
    backward = both - forward if both and forward else None
    pieces = {RETURNS: times.get(RETURNS), FORWARD: forward, "backward": backward}
    shares = {name: ratio(seconds, times.get(WHOLE)) for name, seconds in pieces.items()}
    return attach(
        rows,
        WHOLE,
        [stated(x and 100 * x, f"% of the whole: {name}") for name, x in shares.items()],
    )


@dataclass(frozen=True)
class Pieces:
    """The updates of one rollout of `training`."""

    training: PPOTraining

    @property
    def label(self) -> str:
        return self.training.label

    def check(self, contender: Contender, call: Call, output: Any) -> Verdict:
        """Check that the numbers are finite, and not all zero."""
        assert call.read
        numbers = call.read(output)
        return Verdict("" if np.isfinite(numbers).all() and numbers.any() else "no numbers")


def _prepared(piece: Callable, case: Pieces) -> Call:
    function, arguments = piece(*_ingredients(case))
    program = jax.jit(function)
    return Call(lambda: jax.block_until_ready(program(*arguments)), np.asarray)


@lru_cache(maxsize=1)
def _ingredients(case: Pieces) -> tuple:
    """Return the algorithm, a learner, its rollout, the data of its updates, and a key."""
    from loopless.envs import autoreset, make_compiled
    from loopless.train.ppo.algorithm import build
    from loopless.train.ppo.compiled import CompiledPPO

    config = case.training.config()
    world = autoreset(make_compiled(config.env), config.envs)
    algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
    run, key = CompiledPPO(algorithm, world, world), jax.random.key(0)
    carry = jax.jit(run.init)(key)
    _, rollout, _ = jax.jit(run.collect)(carry, key, np.int32(0), key)
    _, rows = jax.jit(algorithm.prepare)(carry.learner, carry.learner.acting(), rollout)
    return algorithm, carry.learner, rollout, rows, key


def _whole(algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any) -> tuple:
    def updates(learner, rollout):
        return algorithm.learn(learner, learner.acting(), rollout, key, 0)[0].weights

    return updates, (learner, rollout)


def _returns(algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any) -> tuple:
    from loopless.kernels.returns import gae

    discounts = {"gamma": algorithm.config.gamma, "lambda_": algorithm.config.gae_lambda}
    values = rows["old_value"]
    arguments = rollout.reward, values, values, rollout.terminated, rollout.truncated
    return (lambda *arrays: gae(*arrays, **discounts)[0]), arguments


def _passes(
    algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any, backward: bool
) -> tuple:
    from loopless.train.engine.rollouts import cut_minibatches, flatten_steps, shuffles

    config, numbers = algorithm.config, algorithm.coefficients(0)
    units = flatten_steps(rows, rollout.memory)
    orders = shuffles(key, config.epochs, config.rollout_size)
    cut = [cut_minibatches(units, order, config.minibatches) for order in orders]
    minibatches = jax.tree.map(lambda *parts: jnp.concatenate(parts), *cut)

    def loss(weights, rows):
        return algorithm.loss(weights, rows, numbers)[0]

    function = jax.grad(loss) if backward else loss

    def passes(weights, minibatches):
        def add(total, rows):
            return total + function(weights, rows), None

        start = jnp.zeros_like(weights if backward else weights[0])
        return jax.lax.scan(add, start, minibatches)[0]

    return passes, (learner.weights, minibatches)


PIECES = tuple(
    Contender(name, "loopless", "ours", partial(_prepared, piece))
    for name, piece in (
        (WHOLE, _whole),
        (RETURNS, _returns),
        (FORWARD, partial(_passes, backward=False)),
        (GRADIENT, partial(_passes, backward=True)),
    )
)


def time_compiled(seed: int, **changes: Any) -> float:
    """Return the seconds of a run with default settings until it stays solved.

    Evaluations, one after every chunk, are included; everything has been compiled before.
    """
    from loopless.runs.checkpoint import Checkpoint
    from loopless.runs.progress.clock import Clock
    from loopless.train import ppo
    from loopless.train.ppo.config import PPO

    run = ppo.make(PPO(mode="compiled", seed=seed, eval_episodes=EPISODES, **changes))
    clock = Clock()
    arrays = {name: np.array(x) for name, x in run.arrays().items()}
    run.advance(clock)
    run.evaluate()
    run.restore(Checkpoint("start", 0, "full", arrays, {}))
    start, solved = perf_counter(), 0
    while run.step < run.total:
        run.advance(clock)
        solved = solved + 1 if np.mean(run.evaluate()["eval_return"]) >= SOLVED else 0
        if solved == IN_A_ROW:
            return perf_counter() - start
    raise RuntimeError(f"seed {seed} was not solved in {run.total:,} steps")


def time_command() -> float:
    """Return the seconds of `loopless train ppo` on all cores, from its start to its end."""
    seconds, log = run_and_read("train", "ppo", kind="eval")
    last = float(log["eval_return"][-1])
    if last < SOLVED:
        raise RuntimeError(f"the run ended with a return of {last:g}, not {SOLVED:g}")
    return seconds
