"""Policies that act on the host with the weights of an MLP: NumPy in, NumPy out, one compiled call.

`Actor` is for values of discrete actions (DQN), `PolicyActor` for the distributions of
`nets.distributions` (PPO). The kernels are in `compiled.mlp`. Nothing here needs JAX.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopless.compiled.mlp import (
    CODES,
    act,
    act_by_choice,
    act_by_number,
    forward,
    generator,
    normalize,
)

if TYPE_CHECKING:
    from loopless.nets.actor_critic import ActorCritic


class Actor:
    """A policy on the host: `actor(obs)` returns actions, `actor.load(layers)` takes new weights.

    `epsilon` and `temperature` say how it explores; `random`, its generator, is its only state.
    """

    def __init__(
        self, layers: Sequence[tuple[np.ndarray, np.ndarray]], activation: str, seed: int
    ) -> None:
        shapes = [weight.shape for weight, _ in layers]
        self.sizes = np.array([shapes[0][0], *(outputs for _, outputs in shapes)], np.int64)
        self.code = CODES[activation]
        self.weights = np.empty(sum(w.size + b.size for w, b in layers), np.float32)
        self.work = np.empty((2, int(self.sizes.max())), np.float32)
        self.random = generator(seed)
        self.epsilon, self.temperature = 0.0, 0.0
        self._outputs: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.load(layers)

    def load(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Act with these weights from now on."""
        np.concatenate([part.ravel() for pair in layers for part in pair], out=self.weights)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return actions for obs [n, ...], in an array that the next call for n rows overwrites."""
        rows = len(obs)
        if rows not in self._outputs:
            shape = (rows, int(self.sizes[-1]))
            self._outputs[rows] = np.empty(shape, np.float32), np.empty(rows, np.int64)
        values, actions = self._outputs[rows]
        act(
            self.weights, self.sizes, self.code, obs.reshape(rows, -1), self.work, values,
            self.epsilon, self.temperature, self.random, actions,
        )  # fmt: skip
        return actions

    def values(self, obs: np.ndarray) -> np.ndarray:
        """Return Q(s, ·) of obs [n, ...]."""
        out = np.empty((len(obs), int(self.sizes[-1])), np.float32)
        flat = obs.reshape(len(obs), -1)
        forward(self.weights, self.sizes, self.code, flat, self.work, out)
        return out


class PolicyActor:
    """A policy on the host: `actor(obs)` returns actions, and sets `actor.raw` to the raw actions.

    net: an `ActorCritic` of MLPs, without convolutions or core.
    clip: how far from 0 normalized observations may be.
    greedy: whether the mode is taken, and nothing is drawn.

    `random`, a generator of two integers, is its only state beside weights and statistics.
    """

    def __init__(self, net: "ActorCritic", seed: int, *, clip: float = np.inf) -> None:
        if net.images is not None or net.core is not None:
            raise ValueError(
                "PolicyActor: received a network with convolutions or a recurrent core; it acts "
                "for plain MLPs. Compile the network's own call for others."
            )
        layers = [np.asarray(layer.weight).shape for layer in (*net.body.layers, net.policy)]
        self.head: Any = net.head
        self.sizes = np.array([layers[0][0], *(outputs for _, outputs in layers)], np.int64)
        self.code = CODES[net.body.activation]
        scales, self._choices = int(self.head.own), self.head.raw_dtype == "int32"
        self._numbers = np.empty(sum((i + 1) * j for i, j in layers) + scales, np.float32)
        self.weights, self.log_std = np.split(self._numbers, [self._numbers.size - scales])
        self.norm = np.zeros((2, layers[0][0]), np.float32)
        self.norm[1] = 1
        self.clip, self.greedy = np.float32(clip), False
        self.random = generator(seed)
        self.work = np.empty((2, int(self.sizes.max())), np.float32)
        if self._choices:
            self._options = np.array(self.head.sizes, np.int64)
        else:
            self._options = np.array([self.head.low, self.head.high], np.float32)
        self._arrays: dict[int, tuple] = {}
        parts = [
            array
            for layer in (*net.body.layers, net.policy)
            for array in (layer.weight, layer.bias)
        ]
        self.take(np.concatenate([np.ravel(np.asarray(part)) for part in (*parts, net.own)]))

    def take(self, vector: Any, shift: Any = None, scale: Any = None) -> None:
        """Act with these parameters from now on, on observations (x − shift) · scale if given.

        vector: `as_vector` of the network, which starts with the policy's layers and its own
        parameters; the rest, the critic, is not read.
        """
        self._numbers[:] = np.asarray(vector)[: self._numbers.size]
        for row, values in zip(self.norm, (shift, scale), strict=True):
            if values is not None:
                row[:] = np.ravel(values)

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Return actions for obs [n, ...], in arrays that the next call for n rows overwrites.

        mask: [n, choices], true where legal; without one everything is.
        """
        rows = len(obs)
        if rows not in self._arrays:
            self._arrays[rows] = self._arrays_for(rows)
        normal, params, legal, raw, actions, self.raw, shaped = self._arrays[rows]
        obs = obs.reshape(rows, -1)
        if self._choices:
            act_by_choice(
                self.weights, self.sizes, self.code, obs, self.norm, self.clip, normal, self.work,
                params, legal if mask is None else mask, self._options, self.greedy, self.random,
                raw,
            )  # fmt: skip
        else:
            act_by_number(
                self.weights, self.sizes, self.code, obs, self.norm, self.clip, normal, self.work,
                params, self.log_std, self._options, self.head.squash, self.greedy, self.random,
                raw, actions,
            )  # fmt: skip
        return shaped

    def params(self, obs: np.ndarray) -> np.ndarray:
        """Return the outputs [n, ...] of the policy's network."""
        rows = len(obs)
        normal = np.empty((rows, int(self.sizes[0])), np.float32)
        out = np.empty((rows, int(self.sizes[-1])), np.float32)
        normalize(obs.reshape(rows, -1), self.norm, self.clip, normal)
        forward(self.weights, self.sizes, self.code, normal, self.work, out)
        return out

    def _arrays_for(self, rows: int) -> tuple:
        """Return scratch, a mask that allows everything, and actions: raw and for environments."""
        head, width = self.head, int(self.sizes[-1])
        normal = np.empty((rows, int(self.sizes[0])), np.float32)
        params, legal = np.empty((rows, width), np.float32), np.ones((rows, width), bool)
        raw = np.empty((rows, max(1, int(np.prod(head.raw_shape)))), head.raw_dtype)
        shaped = raw.reshape(rows, *head.raw_shape)
        if self._choices:
            return normal, params, legal, raw, raw, shaped, shaped
        actions = np.empty_like(raw)
        return normal, params, legal, raw, actions, shaped, actions.reshape(rows, *head.shape)
