"""The suite `ppo_learning` is shown as `learning` is.

Imports that suite's layout. Tests: `tests/suites/ppo_learning/test_bench_ppo_tasks.py`.
"""

from suites.dqn_learning.layout import TITLES, rendered

__all__ = ["TITLES", "rendered"]
