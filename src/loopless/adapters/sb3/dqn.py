"""Stable-Baselines3's DQN, whose updates are one compiled call and whose acting is another.

With equal seeds it draws the same random numbers as its parent, so that the two runs are equal
until rounding makes an action differ.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import stable_baselines3
import torch
import torch.nn.functional as F
from stable_baselines3.common import buffers as sb3
from stable_baselines3.common.type_aliases import TrainFrequencyUnit

from loopless.adapters.sb3 import files
from loopless.adapters.sb3.acting import read_q_policy
from loopless.adapters.sb3.buffers import PrioritizedReplayBuffer, ReplayBuffer, adopt
from loopless.adapters.sb3.updates import Compiled, split
from loopless.fused.blame import FuseError


class DQN(stable_baselines3.DQN):
    """Stable-Baselines3's DQN: same arguments, callbacks, logs and files, in less time.

    The updates of one `train` are one call of `loopless.fuse`, greedy actions one of
    `loopless.forward`. What these do not take goes on in the parent's own code.
    """

    def _setup_model(self) -> None:
        self._compiled = Compiled("DQN", read_q_policy)
        chosen, options = self.replay_buffer_class, self.replay_buffer_kwargs
        saved = files.read_settings(self.__dict__.get("loopless_replay"))
        if saved and chosen in (None, sb3.ReplayBuffer):
            chosen, options = PrioritizedReplayBuffer, options | saved
        if not (isinstance(chosen, type) and issubclass(chosen, PrioritizedReplayBuffer)):
            super()._setup_model()
            self.replay_buffer = adopt(self.replay_buffer)
            return
        self.replay_buffer_class = chosen
        self.replay_buffer_kwargs = options | {"learner": "DQN"}
        super()._setup_model()
        # What is saved must open in plain Stable-Baselines3.
        self.replay_buffer_class = sb3.ReplayBuffer
        self.loopless_replay, self.replay_buffer_kwargs = files.split_settings(options)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_compiled"]

    @classmethod
    def load(cls, path: Any, *args: Any, **options: Any) -> "DQN":
        """Load a model that this class or Stable-Baselines3's DQN has saved."""
        files.check_version(path)
        return super().load(path, *args, **options)

    def save_replay_buffer(self, path: Any) -> None:
        """Save the replay buffer as one of Stable-Baselines3, which opens without loopless."""
        if isinstance(self.replay_buffer, PrioritizedReplayBuffer):
            raise TypeError(
                "DQN: a file of Stable-Baselines3 has no place for priorities. Save the model "
                "without the buffer."
            )
        super().save_replay_buffer(path)

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Load a replay buffer that this class or Stable-Baselines3 has saved."""
        if isinstance(self.replay_buffer, PrioritizedReplayBuffer):
            raise TypeError("DQN: a prioritized buffer cannot be loaded from a file")
        super().load_replay_buffer(path, truncate_last_traj)
        self.replay_buffer = adopt(self.replay_buffer)

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Return actions, at random with the probability of exploration unless deterministic."""
        if not deterministic and np.random.rand() < self.exploration_rate:
            sample = self.action_space.sample
            if not self.policy.is_vectorized_observation(observation):
                return np.array(sample()), state
            first = next(iter(observation.values())) if isinstance(observation, dict) else None
            count = len(observation if first is None else first)
            return np.array([sample() for _ in range(count)]), state
        actions = self._compiled.predict(self.policy, observation, True)
        if actions is None:
            return self.policy.predict(observation, state, episode_start, deterministic)
        return actions, state

    # --- updates --------------------------------------------------------------------------------

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make updates on batches of the replay buffer."""
        prioritized = isinstance(self.replay_buffer, PrioritizedReplayBuffer)
        policy = self.policy
        fused = self._compiled.prepare(loss, self.q_net, policy.optimizer, self.max_grad_norm)
        if not fused and not prioritized:
            super().train(gradient_steps, batch_size)
            return
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        losses: list[float] = []
        for count in self._calls(gradient_steps, batch_size):
            before = np.random.get_state() if not losses else None
            batches = self._sample(count, batch_size)
            indices = batches.pop("indices", None)
            results = self._update(batches)
            if results is None and not prioritized:
                if before is not None:
                    np.random.set_state(before)  # the parent draws this batch again
                self._n_updates += len(losses)
                super().train(gradient_steps - len(losses), batch_size)
                return
            values, errors = results or self._update_eagerly(batches)
            losses += values.tolist()
            if isinstance(self.replay_buffer, PrioritizedReplayBuffer):
                self.replay_buffer.update_priorities(indices, errors.numpy())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def _update(self, batches: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Make updates by the fused step; return losses and TD errors, or None if it refuses."""
        if self._compiled.refusal is not None:
            return None
        try:
            gamma = self._compiled.number("gamma", self.gamma)
            return self._compiled.step.many(batches, self.q_net_target, gamma)
        except FuseError as error:
            self._compiled.refuse(error)
            return None

    def _calls(self, gradient_steps: int, batch_size: int) -> Iterator[int]:
        """Return how many updates go into each compiled call."""
        row = sum(np.prod(part.shape) * 8 for part in _parts(self.observation_space))
        by_steps = self.train_freq.unit == TrainFrequencyUnit.STEP  # type: ignore[union-attr]
        constant = self.gradient_steps >= 0 or by_steps
        return split(gradient_steps, int(2 * row * batch_size), constant=constant)

    def _sample(self, count: int, batch_size: int) -> dict[str, Any]:
        """Return batches [count, batch_size, …]."""
        buffer: Any = self.replay_buffer
        env = self._vec_normalize_env
        if isinstance(buffer, PrioritizedReplayBuffer):
            progress = self._current_progress_remaining
            return buffer.sample_many(count, batch_size, env, progress)
        if type(buffer) is ReplayBuffer:
            return buffer.sample_many(count, batch_size, env)
        if type(buffer) is getattr(sb3, "NStepReplayBuffer", None) and buffer.n_envs == 1:
            # One large sample draws what `count` small ones draw, because only steps are drawn.
            sample = buffer.sample(count * batch_size, env=env)
            return _as_batch(sample, lambda x: x.reshape(count, batch_size, *x.shape[1:]))
        samples = [_as_batch(buffer.sample(batch_size, env=env)) for _ in range(count)]
        return {name: _stack([sample[name] for sample in samples]) for name in samples[0]}

    def _update_eagerly(self, batches: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the same updates in PyTorch, for prioritized batches, which the parent cannot."""
        optimizer, values, errors = self.policy.optimizer, [], []
        tensors = {name: torch.as_tensor(x, device=self.device) for name, x in batches.items()}
        for row in range(len(tensors["dones"])):
            batch = {name: x[row] for name, x in tensors.items()}
            value, error = loss(self.q_net, batch, self.q_net_target, torch.tensor(self.gamma))
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            optimizer.step()
            values.append(value.detach().cpu())
            errors.append(error.detach().cpu())
        return torch.stack(values), torch.stack(errors)


def loss(q_net: Any, batch: Any, target: Any, gamma: torch.Tensor) -> tuple[Any, Any]:
    """Return DQN's Huber loss as Stable-Baselines3 has it, and the TD errors."""
    discounts = batch.get("discounts", gamma)
    with torch.no_grad():
        best = target(batch["next_observations"]).max(dim=1).values.reshape(-1, 1)
        targets = batch["rewards"] + (1 - batch["dones"]) * discounts * best
    q = torch.gather(q_net(batch["observations"]), dim=1, index=batch["actions"].long())
    errors = (q - targets).detach()
    if "weights" in batch:
        losses = F.smooth_l1_loss(q, targets, reduction="none")
        return (batch["weights"] * losses).mean(), errors
    return F.smooth_l1_loss(q, targets), errors


def _as_batch(sample: Any, shape: Any = lambda x: x) -> dict[str, Any]:
    """Return a named tuple of tensors, or of dicts of them, as a dict without what is None."""
    batch = {}
    for name, x in sample._asdict().items():
        if isinstance(x, dict):
            batch[name] = {key: shape(part) for key, part in x.items()}
        elif x is not None:
            batch[name] = shape(x)
    return batch


def _stack(parts: list) -> Any:
    if isinstance(parts[0], dict):
        return {key: torch.stack([part[key] for part in parts]) for key in parts[0]}
    return torch.stack(parts)


def _parts(space: Any) -> list:
    """Return the spaces whose arrays make up one observation."""
    return list(space.spaces.values()) if hasattr(space, "spaces") else [space]
