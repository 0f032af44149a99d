"""A DQN training loop written plainly: one environment, a ring of NumPy arrays, eager PyTorch.

It has the form of single-file implementations, without wrappers and logging.
"""

from __future__ import annotations

import random

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.dqn_speed import slices
from suites.dqn_speed.slices import BUFFER, STARTS, Training
from suites.processes import torch
from suites.q_learning.plain import Learner, Sampler
from suites.q_learning.updates import OBS, random_layers


class Loop:
    """A run; a call makes the steps of a slice, and returns how many gradient steps it made."""

    def __init__(self, case: Training) -> None:
        import gymnasium

        self.case, self.env = case, gymnasium.make(slices.ENV)
        layers = random_layers(case.hidden, 0)
        self.learner = Learner(layers, layers, slices.RULES)
        self.ring = {
            "obs": np.zeros((BUFFER, OBS), np.float32),
            "action": np.zeros(BUFFER, np.int64),
            "reward": np.zeros(BUFFER, np.float32),
            "next_obs": np.zeros((BUFFER, OBS), np.float32),
            "terminated": np.zeros(BUFFER, bool),
        }
        self.sampler = Sampler(self.ring, remembers=False)  # its tensors share the ring's memory
        self.step, self.random = 0, random.Random(0)
        self.obs, _ = self.env.reset(seed=0)
        while self.step < STARTS:
            self.interact()

    def __call__(self) -> int:
        case, made = self.case, 0
        for _ in range(case.steps):
            self.interact()
            if self.step % case.every == 0:
                for _ in range(case.updates):
                    batch = self.sampler(case.batch)
                    for _ in range(case.repeats):
                        self.learner.update(batch)
                        made += 1
            if self.step % slices.TARGET_EVERY == 0:
                self.learner.target.load_state_dict(self.learner.online.state_dict())
        return made

    def interact(self) -> None:
        """Make one step of the environment, and store it in the ring."""
        action = self.act()
        following, reward, terminated, truncated, _ = self.env.step(action)
        at = self.step % BUFFER
        self.ring["obs"][at] = self.obs
        self.ring["action"][at] = action
        self.ring["reward"][at] = reward
        self.ring["next_obs"][at] = following
        self.ring["terminated"][at] = terminated
        self.obs = self.env.reset()[0] if terminated or truncated else following
        self.step += 1
        self.sampler.count = min(self.step, BUFFER)

    def act(self) -> int:
        if self.random.random() < slices.EPSILON:
            return self.random.randrange(2)
        with torch.no_grad():
            return int(self.learner.online(torch.from_numpy(self.obs)).argmax())


def _loop(case: Training) -> Call:
    torch.manual_seed(0)
    return Call(Loop(case), int)


NOTE = "a bare Gymnasium environment, no logging, no wrappers"
CONTENDER = Contender(slices.EAGER, "torch", "peer", _loop, note=NOTE)
