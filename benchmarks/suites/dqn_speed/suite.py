"""The suite `dqn_speed`: DQN's steps a second and memory against peers and an eager loop.

`slices.py` has the cases, our trainers cut into timed calls, and what the suite of PPO shares; the
loop written plainly is in `plain.py`, and other libraries are in `peers.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_most, attach, ratio, stated, values
from loopless.process import peak_bytes
from pages import tables
from suites.dqn_speed import peers, plain, slices
from suites.dqn_speed.slices import COMPILED, EAGER, HOSTED, Training
from suites.processes import jax, measure_numbers, peer, probe, torch
from suites.q_learning.peers import BASELINES

SLICE, QUICK_SLICE = Training(5_000), Training(1_000)
FOUNDING = Training(400, (64,), 32, every=4, updates=4, repeats=8)
# Cases of the race against compiled peers, and how many times as fast ours must be.
TEN_ENVS: dict[Training, tuple[float, ...]] = {
    Training(5_000, envs=10): (1.5, 3.0),
    Training(5_000, (64, 64), envs=10): (),
}
BARE_JAX, BARE_TORCH = "bare JAX, Equinox, Optax", "bare PyTorch, Stable-Baselines3"

TITLES = {
    "steps": "CartPole-v1, one environment, learning as it goes: steps a second",
    "compiled": "Beside compiled peers, ten environments of CartPole-v1: steps a second",
    "memory": "Peak memory of a process that trains",
}
page = tables(
    ("CartPole-v1, one environment", ("steps",), "contender"),
    ("compiled whole", ("compiled",), "case"),
    ("a process", ("memory",), "contender"),
)
HEADLINES = (
    *slices.headlines("DQN", SLICE),
    *(slices.compiled_headline("DQN", case) for case in TEN_ENVS),
)

FASTER: slices.Factors = {HOSTED: 6.0, COMPILED: 18.0, slices.OVERLAPPED: 14.0}
FOUNDING_FACTOR = 20.0
MODES = {HOSTED: "hosted", COMPILED: "compiled"}


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    case = QUICK_SLICE if options.quick else SLICE
    config = case.config()
    names = ("buffer_size", "learning_starts", "explore_end", "target_every", "learning_rate")
    names += ("loss", "gamma", "max_gradient_norm")
    settings = {name: getattr(config, name) for name in names}
    contest = slices.start(case, settings, options, result, say)
    measure_steps(case, FOUNDING, contest)
    measure_compiled(dict(list(TEN_ENVS.items())[:1]) if options.quick else TEN_ENVS, contest)
    if not options.quick:
        measure_memory(contest)


def measure_steps(case: Training, founding: Training, contest: Contest) -> None:
    slices.race_slices(case, [*peers.CONTENDERS, plain.CONTENDER], FASTER, contest)
    judge = partial(judge_founding, founding)
    contest.run("steps", founding, [slices.IN_HOST, plain.CONTENDER], judge)


def measure_compiled(cases: Mapping[Training, tuple[float, ...]], contest: Contest) -> None:
    for case, factors in cases.items():
        slices.race_compiled(case, (peers.COMPILED, plain.COMPILED), factors, contest)


def judge_founding(case: Training, rows: Rows) -> list[Measurement]:
    rows = slices.as_rates(case, rows)
    return attach(rows, HOSTED, as_fast(rows, HOSTED, {EAGER: FOUNDING_FACTOR}))


def measure_memory(contest: Contest) -> None:
    """Measure the peak memory of whole processes."""
    ways = [
        *((name, "loopless", partial(probe, _train, mode)) for name, mode in MODES.items()),
        (BASELINES, "stable-baselines3", partial(probe, _baselines)),
        (BARE_JAX, "jax", partial(probe, _bare_jax)),
        (BARE_TORCH, "torch", partial(probe, _bare_torch)),
    ]
    if not contest.peers:
        ways = [way for way in ways if way[1] in ("loopless", "jax")]
    rows = measure_numbers(contest, "memory", f"peak of {MEMORY_STEPS:,} steps", "MB", ways)
    for name in MODES:
        rows = judge_memory(name, BASELINES, BARE_JAX, BARE_TORCH, rows)
    contest.keep(rows)


def judge_memory(
    ours: str, theirs: str, bare: str, bare_theirs: str, rows: Rows
) -> list[Measurement]:
    """Judge our peak: at most theirs plus bare JAX; state both beyond their bare frameworks."""
    peak = values(rows)
    our_mb, their_mb, jax_mb, torch_mb = (peak.get(x) for x in (ours, theirs, bare, bare_theirs))
    if not (our_mb and their_mb and jax_mb and torch_mb):
        return attach(rows, ours, [at_most(0, None, f"the peak of {theirs} plus {bare}")])
    most, beyond = their_mb + jax_mb, ratio(our_mb - jax_mb, their_mb - torch_mb)
    within = at_most(most, our_mb, f"{most:.0f} MB: {theirs} plus {bare}")
    return attach(
        rows, ours, [within, stated(beyond, f"× {theirs}, each beyond its bare framework")]
    )


MEMORY_STEPS = 20_000
MEMORY_SLICE = Training(2_000)


def _train(mode: str, steps: int = MEMORY_STEPS) -> float:
    """Return the peak bytes of a real run, with its log and its checkpoints."""
    from loopless.train import commands

    config = MEMORY_SLICE.config()
    with tempfile.TemporaryDirectory() as folder:
        words = {
            "mode": mode, "runs": folder, "steps": steps, "eval-every": 0,
            "learning-starts": config.learning_starts, "loss": config.loss,
            "max-gradient-norm": config.max_gradient_norm,
        }  # fmt: skip
        flags = [text for name, value in words.items() for text in (f"--{name}", str(value))]
        if code := commands.train(["dqn", *flags]):
            raise SystemExit(code)
    return peak_bytes()


def _baselines() -> float:
    peers.dqn_model("stable_baselines3", MEMORY_SLICE).learn(MEMORY_STEPS)
    return peak_bytes()


def _bare_jax() -> float:
    """Return the peak bytes of our framework before anything is trained."""
    for name in ("equinox", "gymnasium", "optax"):
        peer(name)
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    return peak_bytes()


def _bare_torch() -> float:
    """Return the peak bytes of their framework before anything is trained."""
    peer("stable_baselines3")
    torch.ones(2).add(1)
    return peak_bytes()
