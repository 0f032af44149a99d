"""Run a policy that `loopless export` wrote with NumPy alone: it needs neither JAX nor loopless.

The file holds plain arrays, and the card beside it says what they are. Gymnasium is here for the
environment; a robot would do as well.

    loopless export runs/dqn-CartPole-v1-0
    python examples/use_exported_policy.py runs/dqn-CartPole-v1-0/policy.safetensors
"""

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
}


class Policy:
    """Chooses an action for an observation, by the arrays and the card of an export."""

    def __init__(self, file: Path) -> None:
        self.card = json.loads(file.with_suffix(".json").read_text())
        self.arrays = load_file(file)
        self.activation = ACTIVATIONS[self.card["activation"]]

    def __call__(self, observation) -> int:
        return int(np.argmax(self.values(observation)))

    def values(self, observation) -> np.ndarray:
        """Return Q(s, ·)."""
        x = np.asarray(observation, np.float32)
        if "strides" in self.card:
            bytes_ = self.card["observation"]["dtype"] == "uint8"
            x = self.features(x / 255 if bytes_ else x)
        last = self.card["layers"] - 1
        x = x.ravel()
        for k in range(last + 1):
            x = x @ self.arrays[f"layers/{k}/weight"] + self.arrays[f"layers/{k}/bias"]
            x = x if k == last else self.activation(x)
        return x

    def features(self, x: np.ndarray) -> np.ndarray:
        """Return the output of the convolutions: each pixel is a window of `x` times the weight."""
        for k, stride in enumerate(self.card["strides"]):
            weight, bias = self.arrays[f"conv/{k}/weight"], self.arrays[f"conv/{k}/bias"]
            windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], (0, 1))
            x = np.einsum("hwcij,ijco->hwo", windows[::stride, ::stride], weight) + bias
            x = self.activation(x)
        return x


def main(arguments: list[str] | None = None) -> list[float]:
    """Play, and return the returns of the episodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", type=Path)
    parser.add_argument("--env", help="another id than the card's")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)

    import gymnasium

    policy = Policy(args.policy)
    env, returns = gymnasium.make(args.env or policy.card["env"]), []
    for episode in range(args.episodes):
        observation, _ = env.reset(seed=args.seed + episode)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    print(f"{np.mean(returns):.2f} ± {np.std(returns):.2f} over {args.episodes} episodes")
    return returns


if __name__ == "__main__":
    main()
