"""The README's short tables: of each hot spot one case, ours beside the loop and beside a peer.

Chosen by name from the committed results; a name that a result does not hold is an error, so that
the table cannot go stale. Imports `summary` and `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loopless.bench.markdown import line
from loopless.bench.result import Measurement, load
from loopless.bench.summary import ratio, times, written


@dataclass(frozen=True)
class Headline:
    """What is measured, where it stands, and beside which contenders."""

    what: str
    suite: str
    section: str
    case: str
    ours: str
    others: tuple[tuple[str, str], ...]  # (contender, what to call it)


FIVE = (
    Headline(
        "esper-lite's GAE: 512 steps × 64 envs, PyTorch tensors", "returns", "loops", "512×64",
        "loopless, PyTorch",
        (("env × step loop in PyTorch", "the loop it replaces"),
         ("reference: env × step loop", "the loop in bare Python")),
    ),
    Headline(
        "SLM-Lab's Q-loss: an update of batch 32, [64], 32 in one call", "q_learning", "update",
        "batch 32, [64], K = 32", "loopless",
        (("PyTorch, eager", "eager PyTorch"), ("Stable-Baselines3", "Stable-Baselines3")),
    ),
    Headline(
        "AvataRL's loss: 256 tokens of 50,304, gradient included, PyTorch", "avatarl", "loss",
        "V = 50304, k = 4, N = 256", "loopless, PyTorch",
        (("the looped original", "the loop it replaces"),
         ("its vectorisation today", "as it was vectorised")),
    ),
    Headline(
        "ALLO's training: GridRoom-4, batch 1024, MLP 4×256", "allo_speed", "steps",
        "GridRoom-4, n=1024, d=10, MLP 4×256", "loopless",
        (("original form", "the loop it replaces"),),
    ),
    Headline(
        "ALLO's replay: successors at geometric gaps, 256 of 1M steps", "replay", "episodic",
        "episodic, 256 of 1M", "loopless",
        (("reference: one at a time", "the loop it replaces"),),
    ),
)  # fmt: skip
FURTHER = (
    Headline(
        "GAE, 2048 × 64", "returns", "shapes", "2048×64", "loopless, NumPy",
        (("TorchRL, loop", "TorchRL"), ("Stable-Baselines3", "Stable-Baselines3")),
    ),
    Headline(
        "prioritized replay: draw 256 of 1M, weigh, update", "replay", "prioritized",
        "prioritized, 256 of 1M", "loopless", (("cpprb", "cpprb"), ("Tianshou", "Tianshou")),
    ),
    Headline(
        "DQN on CartPole, compiled", "dqn_speed", "steps",
        "[120, 84], batch 128, 1 update in 10 steps", "loopless, compiled",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "DQN on CartPole, any Gymnasium environment", "dqn_speed", "steps",
        "[120, 84], batch 128, 1 update in 10 steps", "loopless, hosted",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "PPO on CartPole, compiled", "ppo_speed", "steps",
        "[64, 64], 4 envs × 128 steps, 4 × 4 updates", "loopless, compiled",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
    Headline(
        "PPO on CartPole, any Gymnasium environment", "ppo_speed", "steps",
        "[64, 64], 4 envs × 128 steps, 4 × 4 updates", "loopless, hosted",
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    ),
)  # fmt: skip
HEADLINES = (*FIVE, *FURTHER)
TABLES = {"headlines": HEADLINES, "five": FIVE, "further": FURTHER}


def rendered(name: str, results: Path) -> list[str]:
    """The table of this name, from the files in `results`."""
    lines = [line(["", "loopless", "beside"]), line(["---", "--:", "---"])]
    for headline in TABLES[name]:
        rows = _rows(headline, results)
        ours = rows[headline.ours]
        beside = [
            f"{shown} {written(rows[name])}: **{times(ratio(ours, rows[name]))}**"
            for name, shown in headline.others
        ]
        lines.append(line([headline.what, written(ours), ", ".join(beside)]))
    return lines


def gain(headline: Headline, results: Path) -> float:
    """How many times as fast as the first that it stands beside."""
    rows = _rows(headline, results)
    return ratio(rows[headline.ours], rows[headline.others[0][0]])


def _rows(headline: Headline, results: Path) -> dict[str, Measurement]:
    return {
        row.contender: row
        for row in load(results / f"{headline.suite}.json").measurements
        if (row.section, row.case) == (headline.section, headline.case)
    }
