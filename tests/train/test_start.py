"""What a run needs before its first step: no package that it does not use."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from loopless.train import registry
registry.trainer(sys.argv[1]).make(registry.config_class(sys.argv[1])(env="CartPole-v1", envs=2))
print(*(name for name in ("numba", "gymnasium", "matplotlib", "torch") if name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["dqn", "ppo"])
def test_a_compiled_run_imports_neither_numba_nor_gymnasium(trainer):
    command = [sys.executable, "-c", SCRIPT, trainer]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
