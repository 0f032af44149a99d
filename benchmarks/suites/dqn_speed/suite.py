"""The suite `dqn_speed`: DQN's steps a second against peers.

`slices.py` has the cases, our trainers cut into timed calls, and what the suite of PPO shares; the
form written plainly is in `plain.py`, and other libraries are in `peers.py`. Eager PyTorch is in
the suite `own_code`.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopless.bench.contest import Contest
from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from pages import tables
from suites.dqn_speed import peers, plain, slices
from suites.dqn_speed.slices import COMPILED, HOSTED, Training

SLICE, QUICK_SLICE = Training(5_000), Training(1_000)
# Cases of the race against compiled peers, and how many times as fast ours must be.
TEN_ENVS: dict[Training, tuple[float, ...]] = {
    Training(5_000, envs=10): (1.5, 3.0),
    Training(5_000, (64, 64), envs=10): (),
}

TITLES = {
    "steps": "CartPole-v1, one environment, learning as it goes: steps a second",
    "compiled": "Beside compiled peers, ten environments of CartPole-v1: steps a second",
}
page = tables(
    ("CartPole-v1, one environment", ("steps",), "contender"),
    ("compiled whole", ("compiled",), "case"),
)
HEADLINES = (
    *slices.headlines("DQN", SLICE),
    *(slices.compiled_headline("DQN", case) for case in TEN_ENVS),
)

FASTER: slices.Factors = {HOSTED: 6.0, COMPILED: 18.0, slices.OVERLAPPED: 14.0}


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    case = QUICK_SLICE if options.quick else SLICE
    config = case.config()
    names = ("buffer_size", "learning_starts", "explore_end", "target_every", "learning_rate")
    names += ("loss", "gamma", "max_gradient_norm")
    settings = {name: getattr(config, name) for name in names}
    contest = slices.start(case, settings, options, result, say)
    measure(case, dict(list(TEN_ENVS.items())[:1]) if options.quick else TEN_ENVS, contest)


def measure(
    case: Training, ten_envs: Mapping[Training, tuple[float, ...]], contest: Contest
) -> None:
    slices.race_slices(case, peers.CONTENDERS, FASTER, contest)
    for each, factors in ten_envs.items():
        slices.race_compiled(each, (peers.COMPILED, plain.COMPILED), factors, contest)
