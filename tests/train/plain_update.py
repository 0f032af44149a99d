"""One update of Q-learning in plain Python, written from the formulae: the compiled one's oracle.

Lists of floats, one number at a time, no arrays and no autograd. The network has one hidden layer
with relu; parameters are (w1 [in][hidden], b1 [hidden], w2 [hidden][actions], b2 [actions]).
"""

import math


def values_of(parameters, x):
    """(hidden activations, Q(x, ·))."""
    w1, b1, w2, b2 = parameters
    hidden = []
    for j in range(len(b1)):
        total = b1[j]
        for i in range(len(x)):
            total += x[i] * w1[i][j]
        hidden.append(total if total > 0 else 0.0)
    values = []
    for a in range(len(b2)):
        total = b2[a]
        for j in range(len(hidden)):
            total += hidden[j] * w2[j][a]
        values.append(total)
    return hidden, values


def first_largest(values):
    best = 0
    for a in range(len(values)):
        if values[a] > values[best]:
            best = a
    return best


def target_of(row, online, target, variant, gamma):
    """y of one row: dict with reward, terminated, next_obs, discount, and next_action for SARSA."""
    if row["terminated"]:
        return row["reward"]
    _, by_online = values_of(online, row["next_obs"])
    _, by_target = values_of(target, row["next_obs"])
    if variant == "vanilla":
        value = by_online[first_largest(by_online)]
    elif variant == "dqn":
        value = by_target[first_largest(by_target)]
    elif variant == "double":
        value = by_target[first_largest(by_online)]
    elif variant == "sarsa":
        value = by_online[row["next_action"]]
    else:
        raise ValueError(variant)
    return row["reward"] + row.get("discount", gamma) * value


def loss_of(d, kind, delta):
    """(L, dL/dd) of one error."""
    if kind == "mse":
        return d * d, 2 * d
    if abs(d) <= delta:
        return 0.5 * d * d, d
    return delta * (abs(d) - 0.5 * delta), delta if d > 0 else -delta


def gradients(rows, online, target, variant, *, gamma, kind="mse", delta=1.0):
    """(loss, gradients shaped like the parameters, errors): a mean over the rows, each weighted."""
    w1, b1, w2, b2 = online
    g1 = [[0.0] * len(b1) for _ in w1]
    h1 = [0.0] * len(b1)
    g2 = [[0.0] * len(b2) for _ in w2]
    h2 = [0.0] * len(b2)
    total, errors = 0.0, []
    for row in rows:
        y = target_of(row, online, target, variant, gamma)
        hidden, values = values_of(online, row["obs"])
        a = row["action"]
        d = values[a] - y
        errors.append(abs(d))
        loss, slope = loss_of(d, kind, delta)
        weight = row.get("weight", 1.0) / len(rows)
        total += weight * loss
        slope *= weight
        h2[a] += slope
        for j in range(len(hidden)):
            g2[j][a] += slope * hidden[j]
            if hidden[j] > 0:
                back = slope * w2[j][a]
                h1[j] += back
                for i in range(len(row["obs"])):
                    g1[i][j] += back * row["obs"][i]
    return total, (g1, h1, g2, h2), errors


def flat(parameters):
    """Parameters as one list, w1 row by row, b1, w2 row by row, b2."""
    w1, b1, w2, b2 = parameters
    return [x for row in w1 for x in row] + list(b1) + [x for row in w2 for x in row] + list(b2)


def shaped(numbers, inputs, hidden, actions):
    """The other way round."""
    numbers = [float(x) for x in numbers]
    at = inputs * hidden
    w1 = [numbers[i * hidden : (i + 1) * hidden] for i in range(inputs)]
    b1 = numbers[at : at + hidden]
    at += hidden
    w2 = [numbers[at + j * actions : at + (j + 1) * actions] for j in range(hidden)]
    return w1, b1, w2, numbers[at + hidden * actions :]


def clipped(gradient, most):
    """(the gradient, no longer than `most`; its own length)."""
    norm = math.sqrt(sum(g * g for g in gradient))
    if most is None or norm <= most:
        return list(gradient), norm
    return [g * most / norm for g in gradient], norm


class Adam:
    """Kingma and Ba 2015; with `decay`, AdamW (Loshchilov and Hutter 2019)."""

    def __init__(self, size, rate, decay=0.0):
        self.m, self.v, self.count = [0.0] * size, [0.0] * size, 0
        self.rate, self.decay = rate, decay

    def step(self, theta, gradient):
        self.count += 1
        moved = []
        for i in range(len(theta)):
            g = gradient[i]
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            first = self.m[i] / (1 - 0.9**self.count)
            second = self.v[i] / (1 - 0.999**self.count)
            change = first / (math.sqrt(second) + 1e-8) + self.decay * theta[i]
            moved.append(theta[i] - self.rate * change)
        return moved


class SGD:
    def __init__(self, size, rate):
        self.rate = rate

    def step(self, theta, gradient):
        return [t - self.rate * g for t, g in zip(theta, gradient, strict=True)]
