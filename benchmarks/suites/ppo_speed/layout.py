"""How the suite `ppo_training` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/suites/ppo_speed/test_bench_ppo_training.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import grid, measured_on, section, target_table
from loopless.bench.result import Result

TITLES = {
    "steps": "CartPole-v1 by PPO, learning as it goes: steps a second",
    "solve": "Seconds until CartPole-v1 is solved",
    "shares": "The updates of one rollout, and their pieces apart",
}


def rendered(result: Result) -> list[str]:
    """Steps a second, seconds to the solution, pieces; then every target with what was measured."""
    return [
        *grid("CartPole-v1 by PPO", section(result, "steps")),
        "",
        *grid("until solved", section(result, "solve"), down="case", across="contender"),
        "",
        *grid("updates of one rollout", section(result, "shares")),
        "",
        *target_table(result.measurements),
        "",
        measured_on(result),
    ]
