"""The kernels by which an MLP policy acts on the host: one compiled call for all environments.

The forward pass is the one that `loopless export` documents: x @ weight + bias, and the activation
between layers. Random numbers come from the counter generator of the buffers, so that the state of
a policy is two integers. `nets.acting` holds the weights and calls this. tanh differs from XLA's by
up to 3e-7 of itself. A learner computes values and log-probabilities anew, in JAX, so that the two
need not agree to the last bit.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits, unit

CODES = {"relu": 0, "tanh": 1, "selu": 2}
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772  # selu's
LARGEST_LOG_STD = 20.0  # as in `nets.distributions`, which cannot be imported here: it needs JAX


@jit(reassociate=True)
def tanh(x):
    """Return tanh of a float32 within 3e-7 of it, without a call, so that loops vectorize.

    The quotient is the fit in x² to tanh x / x with the least relative error, 6e-9, on [0, 8].
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
    """Write the network's outputs for obs [n, D] to out [n, A]; `work` [2, widest] is scratch."""
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
    """Write x @ weight + bias to y, and return where the weights of the next layer begin.

    The layer's weight and bias stand in `weights` from `at` on. Unsigned indices cannot count from
    the end; only with them does the compiler make vector instructions of the inner loop. Four
    inputs at a time read and write y a quarter as often.
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
    """Write an action for each row of `values`; each row throws its own coin.

    With a temperature above 0, actions are drawn with P(a) ∝ exp(value / temperature); else the
    action has the largest value, the first of equals, or with probability `epsilon` is any action.
    Each row takes two numbers from the generator, or with a temperature one for each action.
    """
    key, counter = random[0], random[1]
    rows, width = values.shape
    for row in range(rows):
        best, most = 0, -np.inf
        for a in range(width):
            value = np.float64(values[row, a])
            if temperature > 0:
                u = unit(bits(key, counter + np.uint64(row * width + a)))
                value = value / temperature - np.log(-np.log(u * (1 - 2.0**-53)))  # + Gumbel noise
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
    """Do `forward` and `choose` in one call."""
    forward(weights, sizes, activation, obs, work, values)
    choose(values, epsilon, temperature, random, actions)


@jit()
def normalize(obs, norm, clip, out):
    """Write (obs − shift) · scale, cut off at ±clip, to out [n, D]; norm = shift, scale."""
    for row in range(obs.shape[0]):
        for i in range(obs.shape[1]):
            x = (np.float32(obs[row, i]) - norm[0, i]) * norm[1, i]
            out[row, i] = min(max(x, -clip), clip)


@jit()
def draw_choices(logits, mask, sizes, greedy, random, raw):
    """Write raw [n, k]: the i-th choice is one of `sizes[i]`, with P ∝ exp(logit) if legal, else 0.

    Where nothing is legal, everything is. Each choice takes one number from the generator. `greedy`
    takes the likeliest, the first of equals, and no number.
    """
    key, counter = random[0], random[1]
    rows, choices = raw.shape
    for row in range(rows):
        at = 0
        for i in range(choices):
            end, nothing_legal = at + sizes[i], True
            for a in range(at, end):
                nothing_legal &= not mask[row, a]
            best, most = -1, -np.inf
            for a in range(at, end):
                if (nothing_legal or mask[row, a]) and (best < 0 or logits[row, a] > most):
                    best, most = a, np.float64(logits[row, a])
            if not greedy:
                total = 0.0
                for a in range(at, end):
                    if nothing_legal or mask[row, a]:
                        total += np.exp(logits[row, a] - most)
                left = total * unit(bits(key, counter + np.uint64(row * choices + i)))
                for a in range(at, end):
                    if nothing_legal or mask[row, a]:
                        left -= np.exp(logits[row, a] - most)
                        if left <= 0:  # never at a weight of 0: before it, `left` was above 0
                            best = a
                            break
            raw[row, i] = best - at
            at = end
    if not greedy:
        random[1] = counter + np.uint64(rows * choices)


@jit()
def draw_numbers(params, log_std, greedy, random, raw):
    """Write raw [n, d] = mean + std · normal; scales stand in `log_std` [d], or after the means.

    Normal numbers come in pairs (Box and Muller 1958), each pair from two numbers of the generator.
    `greedy` takes the means, and no number.
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
def bound(raw, bounds, squash, actions):
    """Write actions [n, d] within bounds = low, high: by tanh if `squash`, else cut off."""
    for row in range(raw.shape[0]):
        for i in range(raw.shape[1]):
            low, high, x = bounds[0, i], bounds[1, i], raw[row, i]
            if squash:
                x = low + (np.tanh(x) + np.float32(1)) / np.float32(2) * (high - low)
            actions[row, i] = min(max(x, low), high)


@jit()
def act_by_choice(
    weights, sizes, activation, obs, norm, clip, normal, work, params, mask, choices, greedy,
    random, raw,
):  # fmt: skip
    """Do `normalize`, `forward` and `draw_choices`: from observations to choices."""
    normalize(obs, norm, clip, normal)
    forward(weights, sizes, activation, normal, work, params)
    draw_choices(params, mask, choices, greedy, random, raw)


@jit()
def act_by_number(
    weights, sizes, activation, obs, norm, clip, normal, work, params, log_std, bounds, squash,
    greedy, random, raw, actions,
):  # fmt: skip
    """Do `normalize`, `forward`, `draw_numbers` and `bound`: from observations to numbers."""
    normalize(obs, norm, clip, normal)
    forward(weights, sizes, activation, normal, work, params)
    draw_numbers(params, log_std, greedy, random, raw)
    bound(raw, bounds, squash, actions)


def generator(seed: int) -> np.ndarray:
    """Return the state of a counter generator: its key, and how many numbers were drawn."""
    return np.array([np.random.SeedSequence(seed).generate_state(1, np.uint64)[0], 0], np.uint64)
