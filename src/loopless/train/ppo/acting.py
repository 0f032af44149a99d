"""How a PPO policy acts on the host, as fast as its kind of network can, and what it remembers.

An MLP acts in compiled host code; convolutions and cores by a compiled call on the device. Imports
`ppo` and `nets`. Tests: `tests/train/test_ppo_hosted.py`.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.compiled.mlp import generator
from loopless.compiled.policy import PolicyActor
from loopless.envs.hosted.blocks import Block
from loopless.train.engine.statistics import LARGEST, SMALLEST
from loopless.train.ppo.algorithm import Algorithm


class _MLPPolicy(PolicyActor):
    """An MLP, from the learner's vector of weights."""

    def __init__(self, algorithm: Algorithm, acting: Mapping[str, Any], seed: int) -> None:
        net = algorithm.rebuild(jnp.asarray(acting["online"]))
        normalizes = algorithm.config.normalize_obs
        super().__init__(net, seed, clip=LARGEST if normalizes else np.inf)
        self._kept: np.ndarray | None = None
        self._at = 0
        self.use(acting)

    def use(self, acting: Mapping[str, Any]) -> None:
        """Act by these arrays from now on."""
        scale = None
        if "obs_mean" in acting:
            variance = np.asarray(acting["obs_variance"]) + np.float32(SMALLEST)
            scale = np.float32(1) / np.sqrt(variance)
        self.take(acting["online"], acting.get("obs_mean"), scale)

    def begin(self, block: Block, starts: np.ndarray, raw: np.ndarray) -> Any:
        """A window begins: raw actions [T, N, ...] go into `raw`. What is remembered: nothing."""
        self._kept, self._at = raw, 0
        return ()

    def forget(self) -> None:
        """There is nothing to forget."""

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        actions = super().__call__(obs, mask)
        if self._kept is not None:
            self._kept[self._at] = self.raw
            self._at += 1
        return actions


class _DevicePolicy:
    """Any other network, by a compiled call; a core's memory is empty where episodes start."""

    def __init__(self, algorithm: Algorithm, acting: Mapping[str, Any], seed: int) -> None:
        self._algorithm, self.greedy, self.random = algorithm, False, generator(seed)
        self._act = jax.jit(self._acted, static_argnums=0)
        self._key, self._at, self._starts = jax.random.key(seed), 0, np.zeros(0, bool)
        self._block: Block | None = None
        self._kept: np.ndarray | None = None
        self._memory: Any = None
        self.use(acting)

    def use(self, acting: Mapping[str, Any]) -> None:
        # A copy: the learner's own is given up to the next update.
        self._acting = {name: jnp.array(x) for name, x in acting.items()}

    def begin(self, block: Block, starts: np.ndarray, raw: np.ndarray) -> Any:
        """A window begins, in which `block` tells of ends; the memory before its first row.

        starts: [N], which episodes start with that row. Raw actions [T, N, ...] go into `raw`.
        """
        self._block, self._starts, self._kept, self._at = block, starts, raw, 0
        return self._remembered(block.envs)

    def forget(self) -> None:
        """Nothing is remembered from now on."""
        self._memory = None

    def _remembered(self, envs: int) -> Any:
        if self._memory is None:
            self._memory = self._algorithm.rebuild(self._acting["online"]).memory(envs)
        return self._memory

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        raw, actions, self._memory = self._act(
            self.greedy, self._acting, self._remembered(len(obs)), obs, self._starting(len(obs)),
            mask, self._key, np.uint32(self.random[1]),
        )  # fmt: skip
        self.random[1] += np.uint64(1)
        if self._kept is not None:
            self._kept[self._at] = raw
            self._at += 1
        return np.asarray(actions)

    def _starting(self, envs: int) -> np.ndarray:
        """Which episodes start with the row at hand."""
        block, last = self._block, self._at - 1
        if block is None:
            return np.zeros(envs, bool)
        if last < 0:
            return self._starts
        return block.terminated[last] | block.truncated[last] | ~block.valid[last]

    def _acted(self, greedy: bool, acting, memory, obs, starts, mask, key, number) -> tuple:
        algorithm, head = self._algorithm, self._algorithm.head
        net = algorithm.rebuild(acting["online"])
        params, own, _, memory = net.step(memory, algorithm.see(acting, obs), starts)
        law = head(params, own, mask)
        noise = head.noise(jax.random.fold_in(key, number), (len(obs),))
        raw = law.mode() if greedy else law.sample(noise)
        return raw, head.to_env(raw), memory


def policy_of(
    algorithm: Algorithm, acting: Mapping[str, Any], seed: int, *, greedy: bool = False
) -> Any:
    """What acts by these arrays on the host."""
    net = jax.eval_shape(algorithm.rebuild, acting["online"])
    plain = net.images is None and net.core is None
    policy = (_MLPPolicy if plain else _DevicePolicy)(algorithm, acting, seed)
    policy.greedy = greedy
    return policy
