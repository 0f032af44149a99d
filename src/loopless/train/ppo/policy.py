"""PPO policies outside the compiled program: acting on the host, and the exported form.

An MLP acts in compiled host code; convolutions and cores by a compiled call on the device.
`describe_policy` returns arrays and a description that suffice to act with NumPy alone.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.compiled.mlp import generator
from loopless.envs.hosted.blocks import Block
from loopless.nets.acting import PolicyActor
from loopless.nets.distributions import ChoiceHead, Head
from loopless.nets.mlp import layer_maker
from loopless.train.engine.export import describe_network, describe_observations
from loopless.train.engine.rollouts import LARGEST, SMALLEST
from loopless.train.ppo.algorithm import PPOAlgorithm


class MLPPolicy(PolicyActor):
    """An MLP that acts in compiled host code, from the learner's vector of weights."""

    def __init__(self, algorithm: PPOAlgorithm, acting: Mapping[str, Any], seed: int) -> None:
        net = algorithm.rebuild(jnp.asarray(acting["online"]))
        clip = LARGEST if algorithm.config.normalize_obs else np.inf
        super().__init__(net, seed, clip=clip)
        self._raw: np.ndarray | None = None
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
        """Begin a rollout, whose raw actions [T, N, ...] go into `raw`; return the memory: none."""
        self._raw, self._at = raw, 0
        return ()

    def outputs(self) -> None:
        """Return None: acting does not compute values, so the learner computes everything."""

    def forget(self) -> None:
        """Empty the memory: there is none."""

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        actions = super().__call__(obs, mask)
        if self._raw is not None:
            self._raw[self._at] = self.raw
            self._at += 1
        return actions


class DevicePolicy:
    """A policy with convolutions or a recurrent core (its memory), acting by a compiled call."""

    def __init__(self, algorithm: PPOAlgorithm, acting: Mapping[str, Any], seed: int) -> None:
        self._algorithm, self.greedy, self.random = algorithm, False, generator(seed)
        self._act = jax.jit(self._step, static_argnums=0)
        self._make_layers, self._module = layer_maker(algorithm.rebuild)
        self._outputs: list[tuple[np.ndarray, np.ndarray]] = []
        self._key, self._at, self._starts = jax.random.key(seed), 0, np.zeros(0, bool)
        self._block: Block | None = None
        self._raw: np.ndarray | None = None
        self._memory: Any = None
        self.use(acting)

    def use(self, acting: Mapping[str, Any]) -> None:
        """Act by these arrays from now on."""
        # Copies, because the next update donates the learner's.
        rest = {name: jnp.array(x) for name, x in acting.items() if name != "online"}
        self._acting = self._make_layers(acting["online"]), rest

    def begin(self, block: Block, starts: np.ndarray, raw: np.ndarray) -> Any:
        """Begin a rollout, whose raw actions [T, N, ...] go into `raw`; return the memory so far.

        block: where the environments write which episodes ended. starts: [N], whether an episode
        starts with the first step.
        """
        self._block, self._starts, self._raw, self._at = block, starts, raw, 0
        self._outputs = []
        return self._memory_of(block.envs)

    def forget(self) -> None:
        """Empty the memory."""
        self._memory = None

    def _memory_of(self, envs: int) -> Any:
        if self._memory is None:
            self._memory = self._module(self._acting[0]).memory(envs)
        return self._memory

    def __call__(self, obs: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        raw, actions, self._memory, outputs = self._act(
            self.greedy, self._acting, self._memory_of(len(obs)), obs, self._starting(len(obs)),
            mask, self._key, np.uint32(self.random[1]),
        )  # fmt: skip
        self.random[1] += np.uint64(1)
        if self._raw is not None:
            self._raw[self._at] = raw
            self._at += 1
            self._outputs.append((np.asarray(outputs[0]), np.asarray(outputs[1])))
        return np.asarray(actions)

    def outputs(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the policy's outputs and the values [T, N, ...] of this rollout's observations.

        None for a recurrent network, whose memories the learner needs too.
        """
        if self._module(self._acting[0]).core is not None:
            return None
        params, values = zip(*self._outputs, strict=True)
        return np.stack(params), np.stack(values)

    def _starting(self, envs: int) -> np.ndarray:
        """Return in which environments an episode starts with this step."""
        block, last = self._block, self._at - 1
        if block is None:
            return np.zeros(envs, bool)
        if last < 0:
            return self._starts
        return block.terminated[last] | block.truncated[last] | ~block.valid[last]

    def _step(self, greedy: bool, acting, memory, obs, starts, mask, key, number) -> tuple:
        algorithm, head, (layers, rest) = self._algorithm, self._algorithm.head, acting
        net = self._module(layers)
        obs = algorithm.normalize_obs(rest, obs)
        params, log_std, values, memory = net.step(memory, obs, starts)
        distribution = head(params, log_std, mask)
        noise = head.noise(jax.random.fold_in(key, number), (len(obs),))
        raw = distribution.mode() if greedy else distribution.sample(noise)
        return raw, head.to_env(raw), memory, (params, values)


def make_policy(
    algorithm: PPOAlgorithm, acting: Mapping[str, Any], seed: int, *, greedy: bool = False
) -> Any:
    """Return a policy with these arrays, as fast as the kind of network allows."""
    is_mlp = not algorithm.config.network
    if is_mlp:
        net = jax.eval_shape(algorithm.rebuild, acting["online"])
        is_mlp = net.images is None and net.core is None
    policy = (MLPPolicy if is_mlp else DevicePolicy)(algorithm, acting, seed)
    policy.greedy = greedy
    return policy


# --- export --------------------------------------------------------------------------------------

NORMALIZE = f"x = clip((observation − obs_mean) · obs_scale, ±{LARGEST:g}) takes its place first. "
BODY = "For each layer but the last: x = activation(x @ weight + bias). "
CORES = {
    "none": "",
    "gru": "Memory h is zeros at an episode's start. i = x @ core/inputs/weight + core/inputs/bias "
    "and u = h @ core/recurrent, each cut into three, ir, iz, in and ur, uz, un. r = σ(ir + ur), "
    "z = σ(iz + uz + 1), n = tanh(in + r · (un + core/bias)). h = n + z · (h − n), x = h. ",
    "lstm": "Memory h, c is zeros at an episode's start. x @ core/inputs/weight + core/inputs/bias "
    "+ h @ core/recurrent is cut into four, i, f, o, g. c = σ(f + 1) · c + σ(i) · tanh(g). "
    "h = σ(o) · tanh(c), x = h. ",
}
LAST = "Last layer: out = x @ weight + bias. "


def describe_policy(
    algorithm: PPOAlgorithm, weights: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a policy, and a card that says how to act by them."""
    config, obs = algorithm.config, algorithm.obs
    net = algorithm.rebuild(jnp.asarray(weights["online"]))
    dense = [(layer.weight, layer.bias) for layer in (*net.body.layers, net.policy)]
    arrays, layers, start = describe_network(dense, net.images)
    if config.normalize_obs:
        variance = np.asarray(weights["obs_variance"]) + np.float32(SMALLEST)
        arrays["obs_mean"] = np.asarray(weights["obs_mean"])
        arrays["obs_scale"] = np.float32(1) / np.sqrt(variance)
        layers["obs_clip"] = LARGEST
        start += NORMALIZE
    if net.core is not None:
        arrays |= {
            "core/inputs/weight": np.asarray(net.core.inputs.weight),
            "core/inputs/bias": np.asarray(net.core.inputs.bias),
            "core/recurrent": np.asarray(net.core.recurrent),
        }
        if config.core == "gru":
            arrays["core/bias"] = np.asarray(getattr(net.core, "bias"))  # noqa: B009
    if algorithm.head.own:
        arrays["log_std"] = np.asarray(net.own)
    actions, choice = _describe_actions(algorithm.head)
    card = {
        "env": config.env,
        "observation": describe_observations(obs),
        **actions,
        "activation": config.activation,
        "core": config.core,
        **layers,
        "use": start + BODY + CORES[config.core] + LAST + choice,
    }
    return arrays, card


def _describe_actions(head: Head) -> tuple[dict[str, Any], str]:
    """Return the card's entries about actions, and how the last layer's `out` gives one."""
    if isinstance(head, ChoiceHead):
        if not head.several:
            return {"actions": head.sizes[0]}, (
                "The action is argmax(out), the first of equals, counted from the start of the "
                "action space; actions that are not legal are left out. In training actions were "
                "drawn with probabilities softmax(out)."
            )
        return {"actions": list(head.sizes)}, (
            "out is cut into parts as long as the numbers of `actions`; each choice is the argmax "
            "of its part, the first of equals. In training it was drawn with softmax(part)."
        )
    box = {"shape": list(head.shape), "low": list(head.low), "high": list(head.high)}
    scale = "the second half of out" if head.state_std else "log_std"
    mean = "its first half" if head.state_std else "out"
    bound = "low + (tanh(u) + 1) / 2 · (high − low)" if head.squash else "clip(u, low, high)"
    return {"actions": {**box, "squash": head.squash, "state_std": head.state_std}}, (
        f"u is {mean}, and the action is {bound}, in its shape. In training u was drawn from a "
        f"normal law with that mean and the deviation exp({scale})."
    )
