"""An exported policy, acting with NumPy alone.

`loopless export` writes arrays and a card that says what they are; this is the code that the card
describes in words. Observations and actions are the environment's own, those of one environment or
of several, with a leading axis. `loopless.load_policy` reads the files.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805  # of selu, Klambauer et al. 2017
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "selu": lambda x: SCALE * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0))),
}
LARGEST = 10.0  # normalized observations are clipped to ± this, unless the card names another bound


class Policy:
    """A trained policy: `policy(observation)` returns the action that it holds for best.

    card: what `loopless export` says about the policy, such as `card["env"]`.

    A recurrent policy remembers the observations since the last `reset()`: call that at the start
    of each episode.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> None:
        self.card = dict(card)
        self._arrays = dict(arrays)
        self._activation = ACTIVATIONS[card["activation"]]
        self._core = card.get("core", "none")
        observation = card["observation"]
        self._discrete = observation.get("discrete")  # {"n", "start"}: a number that means one-hot
        self._shape = () if self._discrete else tuple(observation["shape"])
        self._bytes = observation["dtype"] == "uint8"
        self._memory: tuple[np.ndarray, ...] | None = None

    def __repr__(self) -> str:
        return f"Policy(env={self.card.get('env')!r}, trainer={self.card.get('trainer')!r})"

    def __call__(self, observation: Any, mask: Any = None) -> Any:
        """Return the action for one observation, or the actions for several of them [n, ...].

        mask: which choices are legal, [choices] or [n, choices]; all of them, unless it says no.
        """
        outputs, single = self._forward(observation)
        actions = self._choose(outputs, mask)
        if not single:
            return actions
        return int(actions[0]) if actions.ndim == 1 and self._counts else actions[0]

    def outputs(self, observation: Any) -> np.ndarray:
        """Return the network's last layer: Q(s, ·) of DQN, the policy's parameters of PPO."""
        outputs, single = self._forward(observation)
        return outputs[0] if single else outputs

    def reset(self, ended: Any = None) -> None:
        """Forget what came before: at the start of an episode, in all environments.

        ended: [n] booleans, to forget only in those of several environments where it is true.
        """
        if ended is None or self._memory is None:
            self._memory = None
            return
        ended = np.asarray(ended, bool)[:, None]
        self._memory = tuple(np.where(ended, 0, part) for part in self._memory)

    # --- the network

    def _forward(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Return the last layer's outputs [n, ...], and whether there was one observation only."""
        x = np.asarray(observation)
        rank = len(self._shape)
        if x.ndim not in (rank, rank + 1) or (rank and x.shape[x.ndim - rank :] != self._shape):
            raise ValueError(
                f"policy: the observation has shape {x.shape}; expected {self._shape}, or several "
                f"of these with a leading axis, as {self.card.get('env')} gives them."
            )
        single = x.ndim == rank
        x = self._inputs(x[None] if single else x)
        last = self.card["layers"] - 1
        for layer in range(last):
            x = self._activation(self._linear(f"layers/{layer}", x))
        if self._core != "none":
            x = self._remember(x)
        return self._linear(f"layers/{last}", x), single

    def _inputs(self, x: np.ndarray) -> np.ndarray:
        """Return observations [n, ...] as the first layer's inputs [n, width]."""
        if self._discrete:
            count, start = self._discrete["n"], self._discrete["start"]
            places = x.astype(np.int64) - start
            if (places != x - start).any() or (places < 0).any() or (places >= count).any():
                raise ValueError(
                    f"policy: the observation is {x.tolist()}; expected whole numbers from {start} "
                    f"to {start + count - 1}."
                )
            return np.eye(count, dtype=np.float32)[places]
        x = x.astype(np.float32)
        if "obs_mean" in self._arrays:
            bound = self.card.get("obs_clip", LARGEST)
            x = (x - self._arrays["obs_mean"]) * self._arrays["obs_scale"]
            x = np.clip(x, -bound, bound)
        if "strides" in self.card:
            x = self._convolve(x / np.float32(255) if self._bytes else x)
        return x.reshape(len(x), -1)

    def _convolve(self, x: np.ndarray) -> np.ndarray:
        """Return the convolutions' outputs: each place is a window of x times the weight."""
        for layer, stride in enumerate(self.card["strides"]):
            weight, bias = self._weights(f"conv/{layer}")
            windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], (1, 2))
            windows = windows[:, ::stride, ::stride]  # [n, height', width', channels, kernel]
            x = np.tensordot(windows, weight, ([3, 4, 5], [2, 0, 1]))
            x = self._activation(x + bias)
        return x

    def _remember(self, x: np.ndarray) -> np.ndarray:
        """Return what the last layer reads of the memory, after x [n, width] has entered it."""
        recurrent = self._arrays["core/recurrent"]
        if self._memory is None or len(self._memory[0]) != len(x):
            count = 1 if self._core == "gru" else 2
            self._memory = (np.zeros((len(x), len(recurrent)), np.float32),) * count
        h = self._memory[0]
        entering, remembered = self._linear("core/inputs", x), h @ recurrent
        if self._core == "gru":
            (i_r, i_z, i_n) = np.split(entering, 3, -1)
            (h_r, h_z, h_n) = np.split(remembered, 3, -1)
            new = np.tanh(i_n + _sigmoid(i_r + h_r) * (h_n + self._arrays["core/bias"]))
            h = new + _sigmoid(i_z + h_z + 1) * (h - new)
            self._memory = (h,)
        else:
            i, f, o, g = np.split(entering + remembered, 4, -1)
            c = _sigmoid(f + 1) * self._memory[1] + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
            self._memory = (h, c)
        return h

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        weight, bias = self._weights(name)
        return x @ weight + bias

    def _weights(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._arrays[f"{name}/weight"], self._arrays[f"{name}/bias"]

    # --- actions

    @property
    def _counts(self) -> bool:
        """Return whether an action is one number out of several."""
        return isinstance(self.card["actions"], int)

    def _choose(self, outputs: np.ndarray, mask: Any) -> np.ndarray:
        """Return the actions [n, ...] that follow from the last layer's outputs [n, width]."""
        actions = self.card["actions"]
        if isinstance(actions, Mapping):
            return self._numbers(outputs, actions)
        sizes = [actions] if isinstance(actions, int) else actions
        legal = np.broadcast_to(True if mask is None else np.asarray(mask, bool), outputs.shape)
        cuts = np.cumsum(sizes)[:-1]
        choices = [
            # Where nothing is legal, everything is, as in training.
            np.where(allowed | ~allowed.any(-1, keepdims=True), part, -np.inf).argmax(-1)
            for part, allowed in zip(
                np.split(outputs, cuts, -1), np.split(legal, cuts, -1), strict=True
            )
        ]
        if isinstance(actions, int):
            return choices[0] + self.card.get("first_action", 0)
        return np.stack(choices, -1)

    @staticmethod
    def _numbers(outputs: np.ndarray, box: Mapping[str, Any]) -> np.ndarray:
        """Return actions in a box: the law's mean, squashed or clipped into its bounds."""
        mean = np.split(outputs, 2, -1)[0] if box["state_std"] else outputs
        low, high = np.asarray(box["low"], np.float32), np.asarray(box["high"], np.float32)
        if box["squash"]:
            mean = low + (np.tanh(mean) + 1) / 2 * (high - low)
        return np.clip(mean, low, high).reshape(len(mean), *box["shape"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (np.tanh(0.5 * x) + 1)
