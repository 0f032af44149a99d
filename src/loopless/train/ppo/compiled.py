"""PPO in compiled mode: environment and learner are one program, many rollouts a call.

Imports `compiled_mode`, `ppo_run` and `envs`. Tests: `tests/train/test_ppo_runs.py`.
"""

from typing import Any

import jax
import numpy as np

from loopless.envs import autoreset, make_compiled
from loopless.train.engine.compiled_mode import CompiledMode
from loopless.train.ppo.algorithm import CompiledRun, build
from loopless.train.ppo.config import PPO
from loopless.train.ppo.run import Run


class Compiled(Run, CompiledMode):
    """Environment and learner in one program; with `seeds`, so many of them side by side."""

    def __init__(self, config: PPO) -> None:
        env = make_compiled(config.env)
        world = autoreset(env, config.envs)
        algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
        super().__init__(config, algorithm)
        self.run = CompiledRun(algorithm, world)
        self.program = jax.jit(self.many(self.run.chunk, (0, 0, None, None)), donate_argnums=0)
        self.begin(
            self.run.init, CompiledRun(algorithm, autoreset(env, config.eval_episodes)).judge
        )

    def compiled(self, *which: Any) -> Any:
        (rollouts,) = which
        return lambda *args: self.program(*args, np.int32(rollouts))
