"""How an MLP policy acts on the host: one compiled call for all envs, no round trip to a device.

The forward pass is the one that `loopless export` documents: x @ weight + bias, the activation
between layers. Random numbers come from the counter generator of the buffers, so that a policy's
state is two integers. Imports `numba_jit` and `numba_random`, and so Numba. Tests:
`tests/nets/test_acting.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

from collections.abc import Sequence

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits, unit

CODES = {"relu": 0, "tanh": 1, "selu": 2}
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772  # selu's


@jit(reassociate=True)
def tanh(x):
    """tanh of a float32, off by 3e-7 of it at most, as XLA's is; a loop of it has no call in it.

    The quotient is a fit in x² to tanh x / x with the least relative error, 6e-9, on [0, 8].
    """
    x = min(max(x, np.float32(-8)), np.float32(8))
    s = x * x
    p = np.float32(1.52304555e-08) * s + np.float32(2.18946884e-05)
    p = (p * s + np.float32(3.57159961e-03)) * s + np.float32(1.34444993e-01)
    q = np.float32(8.52246184e-07) * s + np.float32(3.41129462e-04)
    q = (q * s + np.float32(2.61644489e-02)) * s + np.float32(4.67778266e-01)
    return x * (p * s + np.float32(9.99999994e-01)) / (q * s + np.float32(1))


@jit(reassociate=True)
def forward(weights, sizes, activation, obs, work, out):
    """out [n, A] = the network's values of obs [n, D]; `work` [2, widest] is scratch."""
    layers = sizes.size - 1
    for row in range(obs.shape[0]):
        x, y = work[0], work[1]
        for i in range(sizes[0]):
            x[i] = obs[row, i]
        at = np.uint64(0)
        for layer in range(layers):
            outputs = np.uint64(sizes[layer + 1])
            at = _layer(weights, at, np.uint64(sizes[layer]), outputs, x, y)
            if layer < layers - 1:
                _activate(activation, outputs, y)
            x, y = y, x
        for j in range(sizes[layers]):
            out[row, j] = x[j]


@jit(reassociate=True)
def _layer(weights, at, inputs, outputs, x, y):
    """y = x @ weight + bias, which stand in `weights` from `at` on; where the next layer's begin.

    Unsigned indices cannot count from the end: only so the compiler makes vector instructions of
    the inner loop. Four inputs at a time read and write y a quarter as often.
    """
    bias = at + inputs * outputs
    for j in range(outputs):
        y[j] = weights[bias + j]
    one, four = np.uint64(1), np.uint64(4)
    i = np.uint64(0)
    while i + four <= inputs:
        a, b, c, d = x[i], x[i + one], x[i + np.uint64(2)], x[i + np.uint64(3)]
        first = at + i * outputs
        second = first + outputs
        third = second + outputs
        fourth = third + outputs
        for j in range(outputs):
            y[j] += (a * weights[first + j] + b * weights[second + j]) + (
                c * weights[third + j] + d * weights[fourth + j]
            )
        i += four
    while i < inputs:
        a, first = x[i], at + i * outputs
        for j in range(outputs):
            y[j] += a * weights[first + j]
        i += one
    return bias + outputs


@jit(reassociate=True)
def _activate(activation, outputs, y):
    if activation == 0:
        for j in range(outputs):
            y[j] = max(y[j], np.float32(0))
    elif activation == 1:
        for j in range(outputs):
            y[j] = tanh(y[j])
    else:
        for j in range(outputs):
            if y[j] > 0:
                y[j] = np.float32(SCALE) * y[j]
            else:
                y[j] = np.float32(SCALE * ALPHA) * (np.exp(y[j]) - np.float32(1))


@jit()
def choose(values, epsilon, temperature, random, actions):
    """An action for each row of `values`: each row throws its own coin.

    With a temperature above 0, actions are drawn with P(a) ∝ exp(value / temperature); else it is
    the largest value's, the first of equals, but with probability `epsilon` any one. Each row
    uses two of the generator's numbers, or one for each action.
    """
    key, counter = random[0], random[1]
    rows, width = values.shape
    for row in range(rows):
        best, most = 0, -np.inf
        for a in range(width):
            value = np.float64(values[row, a])
            if temperature > 0:
                u = unit(bits(key, counter + np.uint64(row * width + a)))
                value = value / temperature - np.log(-np.log(u * (1 - 2.0**-53)))  # Gumbel's
            if value > most:
                best, most = a, value
        if temperature <= 0 and epsilon > 0:
            first = counter + np.uint64(2 * row)
            if unit(bits(key, first)) <= epsilon:
                best = np.int64(below(bits(key, first + np.uint64(1)), np.uint64(width)))
        actions[row] = best
    random[1] = counter + np.uint64(rows * (width if temperature > 0 else 2))


@jit()
def act(weights, sizes, activation, obs, work, values, epsilon, temperature, random, actions):
    """`forward` and `choose` in one call."""
    forward(weights, sizes, activation, obs, work, values)
    choose(values, epsilon, temperature, random, actions)


class Actor:
    """A policy on the host: `actor(obs)` gives actions, `actor.load(layers)` takes new weights.

    `epsilon` and `temperature` say how it explores; `random`, its generator, is all its state.
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
        """Actions for obs [n, ...], in an array that the next call with as many overwrites."""
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
        """Q(s, ·) of obs [n, ...]."""
        out = np.empty((len(obs), int(self.sizes[-1])), np.float32)
        flat = obs.reshape(len(obs), -1)
        forward(self.weights, self.sizes, self.code, flat, self.work, out)
        return out


def generator(seed: int) -> np.ndarray:
    """The state of a counter generator: its key, and how many numbers were drawn."""
    return np.array([np.random.SeedSequence(seed).generate_state(1, np.uint64)[0], 0], np.uint64)
