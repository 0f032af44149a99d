"""What the suite `ppo_learning` runs: every task of PPO, then both modes against each other.

By the code of `bench.learning`. Imports that and the tasks. Tests:
`tests/suites/ppo_learning/test_bench_ppo_tasks.py`.
"""

from __future__ import annotations

from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from suites.dqn_learning.suite import TITLES, page, run_tasks
from suites.ppo_learning.tasks import MODES, QUICK, TASKS

__all__ = ["TITLES", "page", "run"]


def run(options: Options, result: Result, say: Say) -> None:
    """Train everything. Rows are renewed as runs end; Ctrl-C passes through."""
    run_tasks(TASKS, MODES, QUICK, options, result, say)
