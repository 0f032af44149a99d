"""DQN as the commands see it: make a run, play a policy, export it.

Imports the rest of DQN. Tests: `tests/train/test_commands.py`.
"""

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np

from loopless.envs import EnvError, HostedEnvs, compiled_ids
from loopless.nets.q_network import plain_layers
from loopless.runs.failures import BadConfig
from loopless.train.dqn import build
from loopless.train.dqn_compiled import Compiled
from loopless.train.dqn_config import DQN
from loopless.train.dqn_hosted import Hosted, first_episodes, judged_envs, policy_of


def make(config: DQN) -> Compiled | Hosted:
    """The run that `config` describes."""
    hosted = config.overlap or config.vectorization != "auto"
    if config.mode == "auto":
        hosted |= config.env not in compiled_ids()
    if config.mode == "hosted" or (config.mode == "auto" and hosted):
        if config.seeds > 1:
            why = "overlap and vectorization are" if config.env in compiled_ids() else "this env is"
            raise BadConfig([f"seeds is {config.seeds}, which needs compiled mode; {why} hosted."])
        return Hosted(config)
    return Compiled(config)


class Player:
    """A trained policy, without exploration, in Gymnasium environments."""

    def __init__(self, config: DQN, weights: np.ndarray) -> None:
        self.config, self.weights = config, weights

    def _policy(self, envs: HostedEnvs) -> Any:
        return policy_of(build(self.config, envs.obs_space, envs.actions), self.weights, 0)

    def episodes(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of `count` episodes."""
        with judged_envs(self.config, count, seed) as envs:
            return first_episodes(envs, self._policy(envs))

    def frames(self, seed: int) -> tuple[list[np.ndarray], float]:
        """The pictures of one episode, and how many of them make a second."""
        options = {"render_mode": "rgb_array"}
        try:
            with HostedEnvs(self.config.env, 1, seed=seed, env_kwargs=options) as envs:
                policy, frames = self._policy(envs), [envs.render()[0]]
                while len(frames) < LONGEST_RECORDING:
                    step = envs.step(policy(envs.obs))
                    if step.ended[0]:
                        break
                    frames.append(envs.render()[0])
                return frames, envs.frame_rate
        except gymnasium.error.Error as error:  # such as a package for drawing that is missing
            raise EnvError(f"envs: {self.config.env} renders no frames: {error}") from error


LONGEST_RECORDING = 2_000  # frames


def player(config: DQN, weights: np.ndarray) -> Player:
    return Player(config, weights)


def exported(config: DQN, weights: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a policy, and a card that says how to use them."""
    with judged_envs(config, 1, 0) as envs:
        obs, actions = envs.obs_space, envs.actions
        net = build(config, obs, actions).rebuild(jnp.asarray(weights))
    arrays = {}
    for number, (weight, bias) in enumerate(plain_layers(net)):
        arrays |= {f"layers/{number}/weight": weight, f"layers/{number}/bias": bias}
    card = {
        "env": config.env,
        "observation": {"shape": list(obs.shape), "dtype": obs.dtype},
        "actions": actions,
        "activation": config.activation,
        "layers": len(arrays) // 2,
        "use": "x is the observation, flat, as float32; a Discrete one as one-hot. "
        "For each layer but the last: x = activation(x @ weight + bias). Last: values = "
        "x @ weight + bias. The action is argmax(values), the first of equals, counted from the "
        "start of the action space.",
    }
    if net.images is not None:
        for number, (kernel, bias) in enumerate(
            zip(net.images.weights, net.images.biases, strict=True)
        ):
            arrays |= {f"conv/{number}/weight": np.asarray(kernel)}
            arrays |= {f"conv/{number}/bias": np.asarray(bias)}
        card["strides"] = list(net.images.strides)
        card["use"] = (
            "x is the image [height, width, channels] as float32, divided by 255 if it was bytes. "
            "For each of conv: x = activation(convolution(x, weight) + bias), the weight being "
            "[height, width, in, out], no padding, by its stride. Then x is flattened row by row. "
            + card["use"].split("as one-hot. ", 1)[1]
        )
    return arrays, card
