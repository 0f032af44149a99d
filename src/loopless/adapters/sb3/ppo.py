"""Stable-Baselines3's PPO: all minibatches of a rollout in one compiled call, compiled acting.

Actions are drawn by the same law as the parent's, from a generator of ours that its seed seeds.
"""

from contextlib import contextmanager
from typing import Any

import numpy as np
import stable_baselines3
import torch
import torch.nn.functional as F
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance

from loopless.adapters.sb3 import files
from loopless.adapters.sb3.acting import Instead, read_actor_critic
from loopless.adapters.sb3.buffers import DictRolloutBuffer, RolloutBuffer, adopt, flatten
from loopless.adapters.sb3.updates import Compiled, Snapshot, split
from loopless.fused.blame import FuseError


class PPO(stable_baselines3.PPO):
    """Stable-Baselines3's PPO: same arguments, callbacks, logs and files, in less time.

    The updates of a rollout are one call of `loopless.fuse`, and acting is one of `loopless.actor`.
    What these do not take goes on in the parent's own code.
    """

    def _setup_model(self) -> None:
        self._compiled = Compiled("PPO", read_actor_critic)
        super()._setup_model()
        self.rollout_buffer = adopt(self.rollout_buffer)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_compiled"]

    @classmethod
    def load(cls, path: Any, *args: Any, **options: Any) -> "PPO":
        """Load a model that this class or Stable-Baselines3's PPO has saved."""
        files.check_version(path)
        return super().load(path, *args, **options)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed all generators, that of our actor included."""
        super().set_random_seed(seed)
        if seed is not None:
            self._compiled.acts_for = None

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Return actions for observations, and the state as it was."""
        actions = self._compiled.predict(self.policy, observation, deterministic)
        if actions is None:
            return super().predict(observation, state, episode_start, deterministic)
        if isinstance(self.action_space, spaces.Box):
            actions = np.clip(actions, self.action_space.low, self.action_space.high)
        return actions, state

    def collect_rollouts(
        self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int
    ) -> bool:
        """Fill the rollout buffer by the parent's own loop, with compiled acting."""
        with self._acting():
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    @contextmanager
    def _acting(self) -> Any:
        """Let the policy's two methods that a rollout calls be compiled ones."""
        policy, actor = self.policy, self._compiled.find_actor(self.policy)
        if actor is None:
            yield
            return
        for name in ("forward", "predict_values"):
            setattr(policy, name, Instead(getattr(actor, name), policy, name))
        try:
            yield
        finally:
            for name in ("forward", "predict_values"):
                delattr(policy, name)

    # --- updates --------------------------------------------------------------------------------

    def train(self) -> None:
        """Make the updates of all epochs on the rollout."""
        compiled, policy = self._compiled, self.policy
        if self.use_sde and compiled.refusal is None:
            compiled.refuse("gSDE draws random numbers inside the policy")
        kind = type(self.rollout_buffer)
        if kind not in (RolloutBuffer, DictRolloutBuffer) and compiled.refusal is None:
            compiled.refuse(f"its rollout buffer is a {kind.__name__}")
        loss = LOSSES[
            isinstance(self.action_space, spaces.Discrete), bool(self.normalize_advantage)
        ]
        fused = compiled.prepare(loss, policy, policy.optimizer, self.max_grad_norm)
        if not fused:
            super().train()
            return
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        before = self._n_updates
        snapshot = None if self._is_one_call() else Snapshot(policy, policy.optimizer)
        distribution = vars(policy.action_dist).copy()
        try:
            epochs = self._update()
        except FuseError as error:
            compiled.refuse(error)
            if snapshot is not None:
                snapshot.restore()
            self._n_updates = before
            super().train()
            return
        finally:
            vars(policy.action_dist).clear()  # of what tracing left there
            vars(policy.action_dist).update(distribution)
        self._log(epochs)

    def _is_one_call(self) -> bool:
        """Return whether all minibatches have one size, and no KL can end the updates early."""
        rows = self.rollout_buffer.buffer_size * self.rollout_buffer.n_envs
        return rows % self.batch_size == 0 and self.target_kl is None

    def _update(self) -> list[dict[str, np.ndarray]]:
        """Make the updates; return for each epoch what its minibatches gave."""
        flatten(self.rollout_buffer)
        rollout, numbers = self._rollout(), self._numbers()
        rows = len(rollout["advantages"])
        whole = rows - rows % self.batch_size
        if self._is_one_call():
            orders = [np.random.permutation(rows) for _ in range(self.n_epochs)]
            indices = np.concatenate(orders).reshape(-1, self.batch_size)
            results = self._many(rollout, numbers, indices)
            self._n_updates += self.n_epochs
            count = rows // self.batch_size
            return [
                {name: x[epoch * count : (epoch + 1) * count] for name, x in results.items()}
                for epoch in range(self.n_epochs)
            ]
        epochs = []
        for epoch in range(self.n_epochs):
            order = np.random.permutation(rows)
            parts = [order[:whole].reshape(-1, self.batch_size), order[None, whole:]]
            parts = [part for part in parts if part.size]
            results, stopped = self._update_until(rollout, numbers, parts)
            epochs.append(results)
            self._n_updates += 1
            if stopped:
                if self.verbose >= 1:
                    kl = results["kl"][-1]
                    print(f"Early stopping at step {epoch} due to reaching max kl: {kl:.2f}")
                break
        return epochs

    def _update_until(
        self, rollout: dict, numbers: tuple, parts: list[np.ndarray]
    ) -> tuple[dict[str, np.ndarray], bool]:
        """Make updates until the KL of a minibatch is too large; that one is not used any more.

        A call makes all its updates. If one of them should not have been, everything goes back to
        before the call, and only the updates before it are made again.
        """
        all_results, policy = [], self.policy
        limit = np.inf if self.target_kl is None else 1.5 * self.target_kl
        for indices in parts:
            snapshot = None if self.target_kl is None else Snapshot(policy, policy.optimizer)
            results = self._many(rollout, numbers, indices)
            above = np.flatnonzero(results["kl"] > limit)
            if above.size and snapshot is not None:
                first = int(above[0])
                snapshot.restore()
                start = 0
                for count in split(first, 1, constant=False):
                    self._many(rollout, numbers, indices[start : start + count])
                    start += count
                all_results.append({name: x[: first + 1] for name, x in results.items()})
                return _join(all_results), True
            all_results.append(results)
        return _join(all_results), False

    def _many(self, rollout: dict, numbers: tuple, indices: np.ndarray) -> dict[str, np.ndarray]:
        step = self._compiled.step
        values, extras = step.many(rollout, *numbers, indices=indices)
        extras = {name: x.numpy() for name, x in extras.items()}
        return extras | {"loss": values.numpy()}

    def _rollout(self) -> dict[str, Any]:
        """Return the flattened rollout as Stable-Baselines3 hands out its minibatches."""
        buffer = self.rollout_buffer
        names = {"old_values": "values", "old_log_probs": "log_probs"}
        names |= {"advantages": "advantages", "returns": "returns"}
        columns = {ours: getattr(buffer, name).reshape(-1) for ours, name in names.items()}
        actions = buffer.actions.astype(np.float32, copy=False)
        return {"observations": buffer.observations, "actions": actions} | columns

    def _numbers(self) -> tuple:
        """Return what may change between rollouts, as tensors, so that nothing compiles anew."""
        progress = self._current_progress_remaining
        clip = self.clip_range(progress)  # type: ignore[operator]
        clip_values: Any = self.clip_range_vf
        value_clip = None if clip_values is None else clip_values(progress)
        number = self._compiled.number
        clips = number("clip", clip), number("low", 1 - clip), number("high", 1 + clip)
        around = None
        if value_clip is not None:
            around = number("down", -value_clip), number("up", value_clip)
        return clips, around, number("entropy", self.ent_coef), number("value", self.vf_coef)

    def _log(self, epochs: list[dict[str, np.ndarray]]) -> None:
        """Record what Stable-Baselines3 records after its updates."""
        buffer, record, progress = (
            self.rollout_buffer,
            self.logger.record,
            self._current_progress_remaining,
        )
        mean = {name: float(np.mean(x, dtype=float)) for name, x in _join(epochs).items()}
        record("train/entropy_loss", mean["entropy"])
        record("train/policy_gradient_loss", mean["policy"])
        record("train/value_loss", mean["value"])
        record("train/approx_kl", float(np.mean(epochs[-1]["kl"], dtype=float)))
        record("train/clip_fraction", mean["clipped"])
        record("train/loss", float(epochs[-1]["loss"][-1]))
        explained = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
        record("train/explained_variance", explained)
        if hasattr(self.policy, "log_std"):
            record("train/std", torch.exp(self.policy.log_std).mean().item())
        record("train/n_updates", self._n_updates, exclude="tensorboard")
        record("train/clip_range", self.clip_range(progress))  # type: ignore[operator]
        if self.clip_range_vf is not None:
            record("train/clip_range_vf", self.clip_range_vf(progress))  # type: ignore[operator]


def _surrogate(
    policy: Any, batch: Any, numbers: tuple, *, discrete: bool, normalized: bool
) -> tuple[Any, dict[str, Any]]:
    """Return PPO's loss as Stable-Baselines3 has it, and what it logs."""
    (clip, low, high), around, entropy_coefficient, value_coefficient = numbers
    actions = batch["actions"].long().flatten() if discrete else batch["actions"]
    values, log_probs, entropy = policy.evaluate_actions(batch["observations"], actions)
    values, advantages = values.flatten(), batch["advantages"]
    if normalized and len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_ratios = log_probs - batch["old_log_probs"]
    ratios = torch.exp(log_ratios)
    clipped = torch.clamp(ratios, low, high)
    policy_loss = -torch.min(advantages * ratios, advantages * clipped).mean()
    if around is not None:
        old = batch["old_values"]
        values = old + torch.clamp(values - old, *around)
    value_loss = F.mse_loss(batch["returns"], values)
    entropy_loss = -torch.mean(-log_probs if entropy is None else entropy)
    total = policy_loss + entropy_coefficient * entropy_loss + value_coefficient * value_loss
    with torch.no_grad():
        logged = {
            "policy": policy_loss,
            "value": value_loss,
            "entropy": entropy_loss,
            "kl": torch.mean((torch.exp(log_ratios) - 1) - log_ratios),
            "clipped": torch.mean((torch.abs(ratios - 1) > clip).float()),
        }
    return total, logged


def _make(discrete: bool, normalized: bool) -> Any:
    def loss(policy: Any, batch: Any, *numbers: Any) -> Any:
        return _surrogate(policy, batch, numbers, discrete=discrete, normalized=normalized)

    return loss


# for discrete actions or not, with advantages normalized or not
LOSSES = {(d, n): _make(d, n) for d in (False, True) for n in (False, True)}


def _join(results: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([x[name] for x in results]) for name in results[0]}
