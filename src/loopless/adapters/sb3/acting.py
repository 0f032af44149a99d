"""Acting with the networks of Stable-Baselines3's policies, by `forward` and `actor`.

Only policies whose forward is Stable-Baselines3's own, on observations that are one vector of
numbers or one choice, are read. For everything else `read_…` returns None, and
Stable-Baselines3's own code acts.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common import distributions
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn

import loopless as ll

_OF_THE_ACTOR = (
    "forward",
    "extract_features",
    "predict_values",
    "get_distribution",
    "_predict",
    "_get_action_dist_from_latent",
    "predict",
)


class Greedy:
    """Picks the action of the largest Q-value."""

    def __init__(self, policy: Any, read: Callable) -> None:
        self.policy, self.network, self.read = policy, policy.q_net, read
        self.forward = ll.forward(policy.q_net.q_net)

    def is_current(self, policy: Any) -> bool:
        """Return whether this acts for `policy` as it is now."""
        q_net = policy.q_net
        return self.network is q_net and self.forward.module is q_net.q_net

    def __call__(self, obs: np.ndarray, deterministic: bool) -> np.ndarray:
        """Return actions [n]; `deterministic` changes nothing."""
        return self.forward(self.read(obs)).argmax(axis=-1)


class Sampling:
    """Draws actions of an actor-critic policy, with log-probabilities and values."""

    def __init__(self, policy: Any, read: Callable) -> None:
        self.policy, self.read = policy, read
        self.parts = _parts(policy)
        mean, value, log_std, dist = policy.action_net, policy.value_net, None, policy.action_dist
        options: dict[str, Any] = {}
        kind = "categorical"
        if isinstance(dist, distributions.MultiCategoricalDistribution):
            options["sizes"] = [int(size) for size in dist.action_dims]
        elif isinstance(dist, distributions.DiagGaussianDistribution):
            kind, log_std = "normal", policy.log_std
            options["log_std"] = log_std
        body = policy.mlp_extractor
        critic = nn.Sequential(body.value_net, value)
        self.act = ll.actor(
            nn.Sequential(body.policy_net, mean),
            kind,
            value=critic,
            seed=int(torch.randint(2**31, ())),
            **options,
        )
        self.evaluate = ll.forward(critic)
        self.shape = policy.action_space.shape

    def is_current(self, policy: Any) -> bool:
        """Return whether this acts for `policy` as it is now."""
        return self.policy is policy and all(
            a is b for a, b in zip(self.parts, _parts(policy), strict=True)
        )

    def __call__(self, obs: np.ndarray, deterministic: bool) -> np.ndarray:
        """Return actions [n, …]."""
        actions, _, _ = self.act(self.read(obs), greedy=deterministic)
        return actions.reshape(-1, *self.shape)

    def forward(
        self, obs: torch.Tensor, deterministic: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what the policy's forward does: actions, values [n, 1], log-probabilities [n]."""
        actions, log_probs, values = self.act(self.read(obs.numpy()), greedy=deterministic)
        actions = torch.from_numpy(actions.reshape(-1, *self.shape))
        return actions, torch.from_numpy(values)[:, None], torch.from_numpy(log_probs)

    def predict_values(self, obs: torch.Tensor) -> torch.Tensor:
        """Return what the policy's predict_values does: values [n, 1]."""
        return torch.from_numpy(self.evaluate(self.read(obs.numpy())).reshape(-1, 1))


class Instead:
    """Calls a function in place of a policy's method; copies of the policy have their own again."""

    def __init__(self, function: Callable, policy: Any, name: str) -> None:
        self.function, self.policy, self.name = function, policy, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    def __reduce__(self) -> tuple:
        return functools.partial, (getattr(type(self.policy), self.name), self.policy)


def read_q_policy(policy: Any) -> Greedy | None:
    """Return what acts for a DQN's policy, or None."""
    own = _has_own(policy, DQNPolicy, ("predict", "_predict", "forward"))
    network = getattr(policy, "q_net", None)
    if not own or network is None or not _has_own(network, QNetwork, ("forward", "_predict")):
        return None
    read = _reader(network, [network.features_extractor])
    return _or_none(Greedy, policy, read)


def read_actor_critic(policy: Any) -> Sampling | None:
    """Return what acts for an actor-critic policy, or None."""
    if not _has_own(policy, ActorCriticPolicy, _OF_THE_ACTOR):
        return None
    kinds = (
        distributions.CategoricalDistribution,
        distributions.MultiCategoricalDistribution,
        distributions.DiagGaussianDistribution,
    )
    dist = type(policy.action_dist)
    if dist not in kinds or type(policy.mlp_extractor) is not MlpExtractor or policy.squash_output:
        return None
    read = _reader(policy, [policy.pi_features_extractor, policy.vf_features_extractor])
    return _or_none(Sampling, policy, read)


def vectorize(observation: Any, space: spaces.Space) -> tuple[np.ndarray | None, bool]:
    """Return observations [n, …], and whether there was that axis; None for what we do not read.

    What Stable-Baselines3 would refuse, or turn round as it does channels, is left to it.
    """
    if not isinstance(observation, np.ndarray) or observation.dtype.kind not in "iufb":
        return None, False
    shape = space.shape or ()
    if observation.shape == shape:
        return observation[None], False
    if observation.shape[1:] == shape and observation.ndim == len(shape) + 1 and len(observation):
        return observation, True
    return None, False


def _has_own(policy: Any, kind: type, names: tuple[str, ...]) -> bool:
    """Return whether these methods are Stable-Baselines3's, and no hook waits for a call."""
    methods = all(getattr(type(policy), name, None) is getattr(kind, name) for name in names)
    return methods and not policy._forward_hooks and not policy._forward_pre_hooks


def _reader(model: Any, extractors: list[nn.Module]) -> Callable | None:
    """Return the function that turns observations into the networks' float inputs, or None."""
    space = model.observation_space
    if any(type(extractor) is not FlattenExtractor for extractor in extractors):
        return None
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return None
    if isinstance(space, spaces.Discrete):
        table = np.eye(int(space.n), dtype=np.float32)
        return lambda obs: table[obs.reshape(-1)]
    if not isinstance(space, spaces.Box) or (model.normalize_images and is_image_space(space)):
        return None
    return lambda obs: obs


def _or_none(kind: Any, policy: Any, read: Callable | None) -> Any:
    if read is None:
        return None
    try:
        return kind(policy, read)
    except (TypeError, ValueError):  # a layer that `forward` does not know
        return None


def _parts(policy: Any) -> tuple:
    """Return the modules that acting reads: if one is replaced, all is read anew."""
    body = policy.mlp_extractor
    log_std = getattr(policy, "log_std", None)
    return body.policy_net, body.value_net, policy.action_net, policy.value_net, log_std
