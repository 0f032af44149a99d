"""One whole update of PPO in loops, written from the formulae: the compiled one's oracle.

Float64, one row at a time: a row's gradient is worked out by hand, rows are summed one by one, and
Adam goes over the parameters one by one. The policy and the value each have a body of tanh layers.
A network is a dict of lists: "body" and "critic" hold (weight [in, out], bias) of each layer,
"policy" and "value" one such pair, "own" the logarithms of a Gaussian's deviations.
"""

import math
from itertools import pairwise

import numpy as np


def shaped(vector, inputs, hidden, outputs, own):
    """The network in a vector: body, policy, own, critic, value."""
    numbers = np.array(vector, np.float64)
    at = 0

    def take(*shape):
        nonlocal at
        part = numbers[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
        return part

    def layers():
        sizes = [inputs, *hidden]
        return [(take(a, b), take(b)) for a, b in pairwise(sizes)]

    body, policy, deviations = layers(), (take(hidden[-1], outputs), take(outputs)), take(own)
    network = {
        "body": body, "policy": policy, "own": deviations,
        "critic": layers(), "value": (take(hidden[-1], 1), take(1)),
    }  # fmt: skip
    assert at == len(numbers)
    return network, numbers


def forward(layers, last, x):
    """All activations of the layers, the input first, and the outputs of the last one."""
    seen = [np.array(x, np.float64)]
    for weight, bias in layers:
        seen.append(np.tanh(seen[-1] @ weight + bias))
    return seen, seen[-1] @ last[0] + last[1]


def backward(layers, last, seen, slope, gradient):
    """Add a row's gradient to that of `layers` and `last`; `slope` is d loss / d outputs."""
    into_layers, (into_weight, into_bias) = gradient
    into_weight += np.outer(seen[-1], slope)
    into_bias += slope
    back = last[0] @ slope
    for i in reversed(range(len(layers))):
        back = back * (1 - seen[i + 1] ** 2)
        into_layers[i][0][...] += np.outer(seen[i], back)
        into_layers[i][1][...] += back
        back = layers[i][0] @ back


def law(outputs, own, action, gaussian):
    """log π(a), H, and the slopes of both: by the outputs, by own."""
    if gaussian:
        deviation = np.exp(own)
        z = (action - outputs) / deviation
        log_prob = -(0.5 * z * z + own + 0.5 * math.log(2 * math.pi)).sum()
        entropy = (own + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return log_prob, entropy, (z / deviation, z * z - 1), (0 * z, np.ones_like(own))
    probs = np.exp(outputs - outputs.max())
    probs /= probs.sum()
    logs = np.log(probs)
    entropy = -(probs * logs).sum()
    chosen = np.zeros_like(probs)
    chosen[action] = 1
    none = np.zeros(0)
    return logs[action], entropy, (chosen - probs, none), (-probs * (logs + entropy), none)


def advantages_of(values, next_values, rollout, gamma, decay):
    """Generalised advantages and returns, env by env, from the last step to the first."""
    steps, envs = values.shape
    advantages, returns = np.zeros((steps, envs)), np.zeros((steps, envs))
    for env in range(envs):
        after = 0.0
        for t in reversed(range(steps)):
            if not rollout["valid"][t, env]:
                after = 0.0
                continue
            worth = 0.0 if rollout["terminated"][t, env] else next_values[t, env]
            delta = float(rollout["reward"][t, env]) + gamma * worth - values[t, env]
            if rollout["terminated"][t, env] or rollout["truncated"][t, env] or t == steps - 1:
                after = 0.0
            advantages[t, env] = after = delta + gamma * decay * after
            returns[t, env] = after + values[t, env]
    return advantages, returns


class Adam:
    """Kingma and Ba 2015."""

    def __init__(self, size, epsilon):
        self.m, self.v, self.count, self.epsilon = [0.0] * size, [0.0] * size, 0, epsilon

    def step(self, theta, gradient, rate):
        self.count += 1
        for i in range(len(theta)):
            g = gradient[i]
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            first = self.m[i] / (1 - 0.9**self.count)
            second = self.v[i] / (1 - 0.999**self.count)
            theta[i] -= rate * first / (math.sqrt(second) + self.epsilon)


def update(vector, rollout, orders, config, sizes, gaussian):
    """The weights after all epochs and minibatches, and what each update told.

    rollout: arrays [T, N, ...], all_obs one row longer. orders: [epochs][rows], row t·N + env.
    """
    network, theta = shaped(vector, *sizes)
    steps, envs = rollout["reward"].shape

    def value(obs):
        return forward(network["critic"], network["value"], obs)[1][0]

    old_log_probs, values = np.zeros((steps, envs)), np.zeros((steps, envs))
    next_values = np.zeros((steps, envs))
    for t in range(steps):
        for env in range(envs):
            _, outputs = forward(network["body"], network["policy"], rollout["all_obs"][t, env])
            action = rollout["action"][t, env]
            old_log_probs[t, env] = law(outputs, network["own"], action, gaussian)[0]
            values[t, env] = value(rollout["all_obs"][t, env])
            next_values[t, env] = value(rollout["next_obs"][t, env])  # the true one, always
    advantages, returns = advantages_of(
        values, next_values, rollout, config.gamma, config.gae_lambda
    )
    if config.normalize_advantages == "batch":
        real = rollout["valid"]
        advantages[real] -= advantages[real].mean()
        advantages[real] /= advantages[real].std()
    adam, told = Adam(len(theta), config.adam_epsilon), []
    for order in orders:
        size = len(order) // config.minibatches
        for part in range(config.minibatches):
            picked = [divmod(int(row), envs) for row in order[part * size : (part + 1) * size]]
            rows = [place for place in picked if rollout["valid"][place]]
            gradient, vector_gradient = shaped(np.zeros_like(theta), *sizes)
            told.append(
                minibatch(
                    network, gradient, rows, rollout, config, gaussian,
                    old_log_probs, values, advantages, returns,
                )
            )  # fmt: skip
            norm = math.sqrt(sum(g * g for g in vector_gradient))
            told[-1]["gradient_norm"] = norm
            if config.max_gradient_norm and norm > config.max_gradient_norm:
                vector_gradient *= config.max_gradient_norm / norm
            adam.step(theta, vector_gradient, config.learning_rate)
    return theta, told


def minibatch(
    network, gradient, rows, rollout, config, gaussian, old_log_probs, values, advantages, returns
):
    """Add up the rows' gradients; the loss and its parts."""
    told = dict.fromkeys(
        ("policy_loss", "value_loss", "entropy", "approximate_kl", "clip_fraction"), 0.0
    )
    pushes = np.array([advantages[place] for place in rows])
    if config.normalize_advantages == "minibatch":
        pushes = (pushes - pushes.mean()) / pushes.std()
    for place, advantage in zip(rows, pushes, strict=True):
        share = 1 / len(rows)
        obs, action = rollout["all_obs"][place], rollout["action"][place]
        seen, outputs = forward(network["body"], network["policy"], obs)
        log_prob, entropy, by_log_prob, by_entropy = law(outputs, network["own"], action, gaussian)
        ratio = math.exp(log_prob - old_log_probs[place])
        inside = min(max(ratio, 1 - config.clip), 1 + config.clip)
        told["policy_loss"] -= share * min(ratio * advantage, inside * advantage)
        told["entropy"] += share * entropy
        told["approximate_kl"] += share * (ratio - 1 - math.log(ratio))
        told["clip_fraction"] += share * (abs(ratio - 1) > config.clip)
        followed = ratio * advantage <= inside * advantage
        slope = -share * ratio * advantage if followed else 0.0
        slopes = [
            slope * a - share * config.entropy_coefficient * b
            for a, b in zip(by_log_prob, by_entropy, strict=True)
        ]
        into = gradient["body"], gradient["policy"]
        backward(network["body"], network["policy"], seen, slopes[0], into)
        gradient["own"] += slopes[1]
        seen, (value,) = forward(network["critic"], network["value"], obs)
        error, slope = value - returns[place], value - returns[place]
        if config.value_clip is not None:
            away = value - values[place]
            bounded = min(max(away, -config.value_clip), config.value_clip)
            bounded += values[place] - returns[place]
            if abs(bounded) > abs(error):
                error, slope = bounded, bounded if abs(away) <= config.value_clip else 0.0
        told["value_loss"] += share * 0.5 * error * error
        into = gradient["critic"], gradient["value"]
        slope = np.array([share * config.value_coefficient * slope])
        backward(network["critic"], network["value"], seen, slope, into)
    told["loss"] = told["policy_loss"] + config.value_coefficient * told["value_loss"]
    told["loss"] -= config.entropy_coefficient * told["entropy"]
    return told
