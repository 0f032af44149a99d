"""DQN in compiled mode: environment and learner are one program, many events a call.

Imports `compiled_mode`, `dqn_run` and `envs`. Tests: `tests/train/test_dqn_runs.py`.
"""

from functools import partial
from typing import Any

import jax

from loopless.envs import autoreset, make_compiled
from loopless.train.dqn.algorithm import CompiledRun, build
from loopless.train.dqn.config import DQN
from loopless.train.dqn.loop import chunk_by_loop
from loopless.train.dqn.run import Run
from loopless.train.engine.compiled_mode import CompiledMode


class Compiled(Run, CompiledMode):
    """Environment and learner in one program; with `seeds`, so many of them side by side."""

    def __init__(self, config: DQN) -> None:
        env = make_compiled(config.env)
        world = autoreset(env, config.envs)
        algorithm = build(config, world.obs_space, env.actions)
        super().__init__(config, algorithm)
        self.run = CompiledRun(algorithm, world)
        self.begin(
            self.run.init, CompiledRun(algorithm, autoreset(env, config.eval_episodes)).judge
        )

    @property
    def replay(self) -> Any:
        return self.carry.replay

    def compiled(self, *which: Any) -> Any:
        events, learning = which
        if self.config.update == "loop":
            return chunk_by_loop(self.run, events, learning)
        chunk = partial(self.run.chunk, events=events, learning=learning)
        return jax.jit(self.many(chunk, (0, 0, None)), donate_argnums=0)
