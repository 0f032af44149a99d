"""How an actor-critic's MLP policy acts on the host: one compiled call, observations to actions.

It normalises, runs the policy's layers and draws; values and log-probabilities are the learner's,
who computes them for a whole block with the weights that acted. So the two need not agree to the
last bit: here tanh is off by up to 3e-7 of itself. Imports `numba_acting` and `numba_random`, and
so Numba, never JAX. Its twin is `distributions`; tests: `tests/nets/test_numba_policy.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

from typing import TYPE_CHECKING, Any

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.mlp import CODES, forward, generator
from loopless.compiled.random import bits, unit

if TYPE_CHECKING:
    from loopless.nets.actor_critic import ActorCritic

LARGEST_LOG_STD = 20.0  # as in `distributions`, which this file does not import: it needs JAX


@jit()
def normalized(obs, norm, clip, out):
    """out [n, D] = (obs − shift) · scale, cut off at ±clip; norm = shift, scale."""
    for row in range(obs.shape[0]):
        for i in range(obs.shape[1]):
            x = (np.float32(obs[row, i]) - norm[0, i]) * norm[1, i]
            out[row, i] = min(max(x, -clip), clip)


@jit()
def draw_choices(logits, mask, sizes, greedy, random, raw):
    """raw [n, k]: the i-th choice is one of `sizes[i]`, with P ∝ exp(logit) if legal, else 0.

    Where nothing is legal, all is. Each choice uses one of the generator's numbers. `greedy`
    takes the likeliest, the first of equals, and uses none.
    """
    key, counter = random[0], random[1]
    rows, choices = raw.shape
    for row in range(rows):
        at = 0
        for i in range(choices):
            end, none = at + sizes[i], True
            for a in range(at, end):
                none &= not mask[row, a]
            best, most = -1, -np.inf
            for a in range(at, end):
                if (none or mask[row, a]) and (best < 0 or logits[row, a] > most):
                    best, most = a, np.float64(logits[row, a])
            if not greedy:
                total = 0.0
                for a in range(at, end):
                    if none or mask[row, a]:
                        total += np.exp(logits[row, a] - most)
                left = total * unit(bits(key, counter + np.uint64(row * choices + i)))
                for a in range(at, end):
                    if none or mask[row, a]:
                        left -= np.exp(logits[row, a] - most)
                        if left <= 0:  # never at a weight of 0: what was left was above 0
                            best = a
                            break
            raw[row, i] = best - at
            at = end
    if not greedy:
        random[1] = counter + np.uint64(rows * choices)


@jit()
def draw_numbers(params, log_std, greedy, random, raw):
    """raw [n, d] = mean + std · normal; scales stand in `log_std` [d], or behind the means.

    Normal numbers come in pairs (Box and Muller 1958), from two of the generator's each.
    `greedy` takes the means, and uses none.
    """
    key, counter = random[0], random[1]
    rows, width = raw.shape
    sine, at = 0.0, np.uint64(0)
    for row in range(rows):
        for i in range(width):
            raw[row, i] = params[row, i]
            if greedy:
                continue
            if at % np.uint64(2) == 0:
                radius = np.sqrt(-2 * np.log(unit(bits(key, counter + at))))
                angle = 2 * np.pi * unit(bits(key, counter + at + np.uint64(1)))
                normal, sine = radius * np.cos(angle), radius * np.sin(angle)
            else:
                normal = sine
            at += np.uint64(1)
            scale = np.float64(log_std[i] if log_std.size else params[row, width + i])
            scale = np.exp(min(max(scale, -LARGEST_LOG_STD), LARGEST_LOG_STD))
            raw[row, i] = params[row, i] + scale * normal
    random[1] = counter + at + at % np.uint64(2)


@jit()
def bounded(raw, bounds, squash, actions):
    """Actions [n, d] within bounds = low, high: bent to fit if `squash`, else cut off."""
    for row in range(raw.shape[0]):
        for i in range(raw.shape[1]):
            low, high, x = bounds[0, i], bounds[1, i], raw[row, i]
            if squash:
                x = low + (np.tanh(x) + np.float32(1)) / np.float32(2) * (high - low)
            actions[row, i] = min(max(x, low), high)


@jit()
def act_by_choice(
    weights, sizes, activation, obs, norm, clip, seen, work, params, mask, choices, greedy, random,
    raw,
):  # fmt: skip
    """From observations to choices: `normalized`, `forward`, `draw_choices`."""
    normalized(obs, norm, clip, seen)
    forward(weights, sizes, activation, seen, work, params)
    draw_choices(params, mask, choices, greedy, random, raw)


@jit()
def act_by_number(
    weights, sizes, activation, obs, norm, clip, seen, work, params, own, bounds, squash, greedy,
    random, raw, actions,
):  # fmt: skip
    """From observations to numbers: `normalized`, `forward`, `draw_numbers`, `bounded`."""
    normalized(obs, norm, clip, seen)
    forward(weights, sizes, activation, seen, work, params)
    draw_numbers(params, own, greedy, random, raw)
    bounded(raw, bounds, squash, actions)


class PolicyActor:
    """A policy on the host: `actor(obs)` gives the environments' actions, `actor.raw` the raw ones.

    net: an `ActorCritic` of MLPs, without convolutions or core.
    clip: how far from 0 normalised observations may be.
    greedy: whether the mode is taken, and nothing drawn.

    `random`, a generator of two integers, is all its state beside weights and statistics.
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
        own, self._choices = int(self.head.own), self.head.raw_dtype == "int32"
        self._numbers = np.empty(sum((i + 1) * j for i, j in layers) + own, np.float32)
        self.weights, self.own = np.split(self._numbers, [self._numbers.size - own])
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
        """Act by these parameters from now on, on observations (x − shift) · scale if given.

        vector: `as_vector` of the network, which starts with the policy's layers and `own`; the
        rest, the critic, is not read.
        """
        self._numbers[:] = np.asarray(vector)[: self._numbers.size]
        for row, given in zip(self.norm, (shift, scale), strict=True):
            if given is not None:
                row[:] = np.ravel(given)

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Actions of obs [n, ...], in arrays that the next call with as many overwrites.

        mask: [n, choices], true where legal; without one all is.
        """
        rows = len(obs)
        if rows not in self._arrays:
            self._arrays[rows] = self._arrays_for(rows)
        seen, params, legal, raw, actions, self.raw, shaped = self._arrays[rows]
        obs = obs.reshape(rows, -1)
        if self._choices:
            act_by_choice(
                self.weights, self.sizes, self.code, obs, self.norm, self.clip, seen, self.work,
                params, legal if mask is None else mask, self._options, self.greedy, self.random,
                raw,
            )  # fmt: skip
        else:
            act_by_number(
                self.weights, self.sizes, self.code, obs, self.norm, self.clip, seen, self.work,
                params, self.own, self._options, self.head.squash, self.greedy, self.random,
                raw, actions,
            )  # fmt: skip
        return shaped

    def params(self, obs: np.ndarray) -> np.ndarray:
        """The outputs [n, ...] of the policy's network."""
        rows = len(obs)
        seen = np.empty((rows, int(self.sizes[0])), np.float32)
        out = np.empty((rows, int(self.sizes[-1])), np.float32)
        normalized(obs.reshape(rows, -1), self.norm, self.clip, seen)
        forward(self.weights, self.sizes, self.code, seen, self.work, out)
        return out

    def _arrays_for(self, rows: int) -> tuple:
        """Scratch, a mask for all that is legal, raw and env actions: flat, and shaped."""
        head, width = self.head, int(self.sizes[-1])
        seen = np.empty((rows, int(self.sizes[0])), np.float32)
        params, legal = np.empty((rows, width), np.float32), np.ones((rows, width), bool)
        raw = np.empty((rows, max(1, int(np.prod(head.raw_shape)))), head.raw_dtype)
        shaped = raw.reshape(rows, *head.raw_shape)
        if self._choices:
            return seen, params, legal, raw, raw, shaped, shaped
        actions = np.empty_like(raw)
        return seen, params, legal, raw, actions, shaped, actions.reshape(rows, *head.shape)
