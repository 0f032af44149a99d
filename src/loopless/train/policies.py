"""`loopless.load_policy`: a trained policy as a function from NumPy observations to actions.

How it acts stands in `nets/exported.py`, which needs NumPy alone; only to read a run, which keeps
weights in the trainer's own form, are JAX and the trainer imported.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic
from loopless.nets.exported import Policy
from loopless.runs.failures import BadRun

NAME = "policy.safetensors"
LARGEST_CARD = 1 << 20  # bytes


def load_policy(folder: str | Path, *, checkpoint: str = "best", agent: int = 0) -> Policy:
    """Return the policy of a run, or of what `loopless export` wrote, as a callable.

        policy = loopless.load_policy("runs/ppo-CartPole-v1-0")
        action = policy(observation)        # as the environment takes it; or [n] for [n, ...]
        policy.reset()                      # a recurrent policy, at the start of each episode

    folder: a run of `train dqn` or `train ppo`; the folder of an export, or its file.
    checkpoint: of a run: best, latest, or the name of a checkpoint.
    agent: of a run with several seeds: the number of the agent.
    """
    path = Path(folder)
    if path.is_dir() and (path / "run.json").exists():
        return _of_run(path, checkpoint, agent)
    file = path / NAME if path.is_dir() else path
    if not file.is_file() or file.suffix != ".safetensors":
        raise BadRun(
            f"load_policy: {path} is neither a run nor an export. Name the folder of a run of "
            f"dqn or ppo, or the .safetensors file that `loopless export` wrote."
        )
    return Policy(*_read(file))


class NetworkPolicy:
    """The policy of a run with a network of the user's own, which acts by JAX.

    It is called as `Policy` is.
    """

    def __init__(self, player: Any) -> None:
        from loopless.train.engine.players import evaluation_envs

        with evaluation_envs(player.config, 1, 0) as envs:
            self._act, self._obs, self._actions = player.policy(envs), envs.obs, envs.action_space
        self.card: dict[str, Any] = {"env": player.config.env, "network": player.config.network}

    def __repr__(self) -> str:
        return f"NetworkPolicy(env={self.card['env']!r}, network={self.card['network']!r})"

    def __call__(self, observation: Any, mask: Any = None) -> Any:
        """Return the action for one observation, or the actions for several of them [n, ...]."""
        x, shape = np.asarray(observation), self._obs.shape[1:]
        if x.ndim not in (len(shape), len(shape) + 1) or x.shape[x.ndim - len(shape) :] != shape:
            raise ValueError(
                f"policy: the observation has shape {x.shape}; expected {shape}, or several of "
                f"these with a leading axis."
            )
        is_single = x.ndim == len(shape)
        inputs = [np.asarray(x[None] if is_single else x, self._obs.dtype)]
        if mask is not None:
            inputs.append(np.atleast_2d(np.asarray(mask, bool)))
        actions = np.asarray(self._act(*inputs)) + getattr(self._actions, "start", 0)
        if not is_single:
            return actions
        return actions[0].item() if actions.ndim == 1 else actions[0]

    def reset(self, ended: Any = None) -> None:
        """Do nothing: the policy has no memory."""


def _of_run(path: Path, checkpoint: str, agent: int) -> Any:
    """Return the policy of a run: what `loopless export` would write, or its own network."""
    from loopless.train import commands

    if getattr(commands.read_config(path), "network", None):
        return NetworkPolicy(commands.load_player(path, checkpoint, agent, quiet=True))
    return Policy(*_export(path, checkpoint, agent))


def _export(path: Path, checkpoint: str, agent: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arrays and card of a run's policy, as `loopless export` would write them."""
    from loopless.train import commands, registry

    run, config, weights = commands.load_weights(path, checkpoint, agent, quiet=True)
    module = registry.trainer(run.trainer)
    if not hasattr(module, "player"):
        raise BadRun(f"load_policy: {path} is a run of {run.trainer}, which has no policy.")
    arrays, card = module.export(config, weights)
    return arrays, {"run": run.name, "trainer": run.trainer, **card}


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arrays and card of an export; raise BadRun if they do not belong together."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    card_file = file.with_suffix(".json")
    try:
        card = json.loads(atomic.read_small(card_file, LARGEST_CARD))
        arrays = load(file.read_bytes())
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise BadRun(f"load_policy: cannot read {file} and its card: {error}") from error
    if problem := _mismatch(arrays, card):
        raise BadRun(f"load_policy: {file} {problem}")
    return arrays, card


def _mismatch(arrays: dict[str, Any], card: Any) -> str:
    """Return what is wrong with an export; nothing, if arrays and card belong together."""
    if not isinstance(card, dict) or not {"actions", "layers", "observation"} <= card.keys():
        return "holds no policy: its card names no layers and actions. Export a run of dqn or ppo."
    shapes = {name: [list(array.shape), array.dtype.name] for name, array in arrays.items()}
    if shapes != card.get("arrays"):
        return "and its card differ in the names and shapes of arrays. Export the run again."
    return ""
