"""The README's short table: of each hot spot one case, ours beside the loop and beside a peer.

Chosen by name from the committed results; a name that a result does not hold is an error, so that
the table cannot go stale. Imports `result` and `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loopless.bench.markdown import line
from loopless.bench.result import Measurement, load
from loopless.bench.table import quantity

RATE = "steps/s"  # where more is better; everything else is a time


@dataclass(frozen=True)
class Headline:
    """What is measured, where it stands, and beside which contenders."""

    what: str
    suite: str
    section: str
    case: str
    ours: str
    others: tuple[tuple[str, str], ...]  # (contender, what to call it)


HEADLINES = (
    Headline(
        "GAE on PyTorch tensors, 512 steps × 64 envs", "returns", "loops", "512×64",
        "loopless, PyTorch",
        (("env × step loop in PyTorch", "the loop it replaces"),
         ("reference: env × step loop", "the loop in bare Python")),
    ),
    Headline(
        "GAE, 2048 × 64", "returns", "shapes", "2048×64", "loopless, NumPy",
        (("TorchRL, loop", "TorchRL"), ("Stable-Baselines3", "Stable-Baselines3")),
    ),
    Headline(
        "prioritized replay: draw 256 of 1M, weigh, update", "replay", "prioritized",
        "prioritized, 256 of 1M", "loopless", (("cpprb", "cpprb"), ("Tianshou", "Tianshou")),
    ),
    Headline(
        "successors at geometric gaps, 256 of 1M steps", "replay", "episodic",
        "episodic, 256 of 1M", "loopless",
        (("reference: one at a time", "the loop it replaces"),),
    ),
    Headline(
        "a DQN update (32 in one call), batch 32, [64]", "q_learning", "update",
        "batch 32, [64], K = 32", "loopless",
        (("PyTorch, eager", "eager PyTorch"), ("Stable-Baselines3", "Stable-Baselines3")),
    ),
    Headline(
        "DQN on CartPole, compiled", "training", "steps",
        "[120, 84], batch 128, 1 update in 10 steps", "loopless, compiled",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "DQN on CartPole, any Gymnasium environment", "training", "steps",
        "[120, 84], batch 128, 1 update in 10 steps", "loopless, hosted",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "PPO on CartPole, compiled", "ppo_training", "steps",
        "[64, 64], 4 envs × 128 steps, 4 × 4 updates", "loopless, compiled",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "PPO on CartPole, any Gymnasium environment", "ppo_training", "steps",
        "[64, 64], 4 envs × 128 steps, 4 × 4 updates", "loopless, hosted",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
)  # fmt: skip


def rendered(results: Path) -> list[str]:
    """The table, from the files in `results`."""
    lines = [line(["", "loopless", "beside"]), line(["---", "--:", "---"])]
    for headline in HEADLINES:
        rows = {
            row.contender: row
            for row in load(results / f"{headline.suite}.json").measurements
            if (row.section, row.case) == (headline.section, headline.case)
        }
        ours = rows[headline.ours]
        beside = [
            f"{shown} {_written(rows[name])}: **{_ratio(ours, rows[name])}×**"
            for name, shown in headline.others
        ]
        lines.append(line([headline.what, _written(ours), ", ".join(beside)]))
    return lines


def _written(row: Measurement) -> str:
    return quantity(row.value or 0.0, row.unit)


def _ratio(ours: Measurement, other: Measurement) -> str:
    one, two = ours.value or 0.0, other.value or 0.0
    ratio = one / two if ours.unit == RATE else two / one
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"
