"""The suite `ppo_speed`: PPO against peers in steps a second.

It is built like `dqn_speed`, and uses its `slices.py`. The form written plainly is in `plain.py`,
other libraries are in `peers.py`. Eager PyTorch is in the suite `own_code`, how soon CartPole is
solved in `felt`, and `loopless train ppo --profile` shows where the time of a run goes.
"""

from __future__ import annotations

from loopless.bench.contest import Contest
from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from pages import tables
from suites.dqn_speed import slices
from suites.dqn_speed.slices import COMPILED, HOSTED, OVERLAPPED, PPOTraining
from suites.ppo_speed import peers, plain

SLICE, QUICK_SLICE = PPOTraining(5_120), PPOTraining(1_024)  # whole rollouts

TITLES = {
    "steps": "CartPole-v1 by PPO, learning as it goes: steps a second",
    "compiled": "Beside compiled peers: steps a second",
}
page = tables(
    ("CartPole-v1 by PPO", ("steps",), "contender"), ("compiled whole", ("compiled",), "case")
)
HEADLINES = (*slices.headlines("PPO", SLICE), slices.compiled_headline("PPO", SLICE))

FASTER: slices.Factors = {HOSTED: 6.0, COMPILED: 30.0, OVERLAPPED: None}
COMPILED_FACTORS = (1.6,)  # times as fast as each compiled peer


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    case = QUICK_SLICE if options.quick else SLICE
    settings = peers.options(case) | {"n_envs": case.envs}
    measure(case, slices.start(case, settings, options, result, say))


def measure(case: PPOTraining, contest: Contest) -> None:
    slices.race_slices(case, peers.CONTENDERS, FASTER, contest)
    slices.race_compiled(case, (peers.COMPILED, plain.COMPILED), COMPILED_FACTORS, contest)
