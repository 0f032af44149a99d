"""What the tests of ALLO share: small grids, a small config, a learner in double precision."""

from dataclasses import replace

import jax
import numpy as np

from loopless.train.allo.algorithm import build
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import move_to_device, read_source

ROOM = ".....\n.XX..\n....X\n"
PORTAL = ".,.,E1,.\n.,X,X,.\nPD:1,.,.,.\n"
TINY = ALLO(
    grid=ROOM, envs=20, env_steps=40, episode_length=20, steps=60, components=3, hidden=(6, 5),
    batch_size=16, log_every=10, plot_every=20, checkpoint_every=20, barrier=(1.5,),
    barrier_rate=0.02, integral_gain=0.1, dual_start=-0.5, discount=0.7, dual_rate=0.05,
)  # fmt: skip


def tiny(**options) -> ALLO:
    config = replace(TINY, **options)
    assert not config.problems(), config.problems()
    return config


class Case:
    """A config's pure functions in float64, what they draw from, and a learner."""

    def __init__(self, config: ALLO):
        self.config, self.source = config, read_source(config)
        sampler, (self.data, *_) = move_to_device(config, self.source)
        self.table = self.source.table
        self.algorithm = build(config, sampler, self.table, "float64")
        self.key = jax.random.key(config.seed)
        self.barrier = config.barrier[0]

    def learner(self):
        return jax.jit(self.algorithm.init)(self.key, np.float64(self.barrier))

    def layers(self, learner):
        return self.algorithm.rebuild(learner.weights).layers()
