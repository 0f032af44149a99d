"""Other libraries' buffers, full, each called as its users call it.

Filling them is not timed. Their output is converted to NumPy for the check only, untimed. flashbax
is called from the host like the others, and inside a compiled scan.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.processes import warnings_of_peers_ignored
from suites.replay.cases import (
    ALPHA,
    BETA,
    FIELDS,
    Adding,
    Arrays,
    Prioritized,
    Sampler,
    Scanned,
    Steps,
    Uniform,
    sampler,
    scanned,
)

CPPRB, BASELINES, TORCHRL, TIANSHOU = "cpprb", "Stable-Baselines3", "TorchRL", "Tianshou"
FLASHBAX = "flashbax"
LIBRARIES = {name: name.lower() for name in (CPPRB, BASELINES, TORCHRL, TIANSHOU, FLASHBAX)}


def _columns(output: Any, names: dict[str, str]) -> Arrays:
    """Return fields by our names, [B, 1] as [B]; copied, because cpprb overwrites its indices."""
    found = {ours: np.asarray(output[theirs]).copy() for ours, theirs in names.items()}
    return {
        name: x.reshape(len(x), *FIELDS[name][0]) if name in FIELDS else x.reshape(-1)
        for name, x in found.items()
    }


SAME_NAMES = {name: name for name in FIELDS}
BASELINES_NAMES = {
    "obs": "observations", "next_obs": "next_observations", "action": "actions",
    "reward": "rewards", "terminated": "dones",
}  # fmt: skip
TIANSHOU_NAMES = {
    "obs": "obs", "action": "act", "reward": "rew", "next_obs": "obs_next",
    "terminated": "terminated",
}  # fmt: skip


def _cpprb_fields() -> dict[str, Any]:
    return {name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in FIELDS.items()}


def _seed_global_generator() -> None:
    np.random.seed(0)  # noqa: NPY002  (cpprb, SB3 and Tianshou draw from it)


def _cpprb(case: Uniform) -> Sampler:
    import cpprb

    _seed_global_generator()
    buffer = cpprb.ReplayBuffer(case.count, _cpprb_fields())
    buffer.add(**case.stored)
    return sampler(
        lambda: buffer.sample(case.batch), lambda out: _columns(out, SAME_NAMES), case.batches
    )


def _cpprb_prioritized(case: Prioritized) -> Sampler:
    import cpprb

    _seed_global_generator()
    buffer = cpprb.PrioritizedReplayBuffer(case.count, _cpprb_fields(), alpha=ALPHA)
    buffer.add(**case.stored)
    buffer.update_priorities(np.arange(case.count), case.priorities)
    names = SAME_NAMES | {"indices": "indexes", "weights": "weights"}
    fresh = case.fresh

    def draw() -> Any:
        return buffer.sample(case.batch, beta=BETA)

    return Sampler(
        lambda: buffer.update_priorities(draw()["indexes"], fresh),
        lambda out: _columns(out, names),
        draw,
        buffer.update_priorities,
    )


def _cpprb_adding(case: Adding) -> Call:
    import cpprb

    buffer = cpprb.ReplayBuffer(case.count, _cpprb_fields())
    buffer.add(**case.stored)
    step = case.step
    return Call(
        lambda: buffer.add(**step), lambda _: _columns(buffer.get_all_transitions(), SAME_NAMES)
    )


def _baselines_buffer(count: int, envs: int) -> Any:
    with warnings_of_peers_ignored():
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

    _seed_global_generator()
    seen = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return ReplayBuffer(count, seen, spaces.Discrete(2), device="cpu", n_envs=envs)


def _baselines(case: Uniform) -> Sampler:
    buffer, stored = _baselines_buffer(case.count, 1), case.stored
    # This stores the same values as a million calls of `add`.
    buffer.observations[:, 0] = stored["obs"]
    buffer.next_observations[:, 0] = stored["next_obs"]
    buffer.actions[:, 0, 0] = stored["action"]
    buffer.rewards[:, 0] = stored["reward"]
    buffer.dones[:, 0] = stored["terminated"]
    buffer.full = True
    read = partial(_columns, names=BASELINES_NAMES)
    return sampler(lambda: buffer.sample(case.batch), lambda out: read(out._asdict()), case.batches)


def _baselines_adding(case: Adding) -> Call:
    buffer = _baselines_buffer(case.count, case.envs)
    infos: list[dict[str, Any]] = [{} for _ in range(case.envs)]

    def arguments(step: Arrays) -> tuple:
        fields = ("obs", "next_obs", "action", "reward", "terminated")
        return (*(step[name] for name in fields), infos)

    for step in case.steps():
        buffer.add(*arguments(step))
    new = arguments(case.step)

    def read(_: None) -> Arrays:
        flat = {ours: getattr(buffer, theirs) for ours, theirs in BASELINES_NAMES.items()}
        return _columns({k: v.reshape(case.count, -1) for k, v in flat.items()}, SAME_NAMES)

    return Call(lambda: buffer.add(*new), read)


def _tensordict(arrays: Arrays) -> Any:
    import torch
    from tensordict import TensorDict

    tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
    return TensorDict(tensors, [len(arrays["obs"])])  # pyright: ignore[reportArgumentType]


def _torchrl_buffer(arrays: Arrays, batch: int | None = None) -> Any:
    with warnings_of_peers_ignored():
        import torch
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)
        torch.manual_seed(0)
        storage = LazyTensorStorage(len(arrays["obs"]))
        buffer = ReplayBuffer(storage=storage, batch_size=batch)
        buffer.extend(_tensordict(arrays))
    return buffer


def _torchrl(case: Uniform) -> Sampler:
    buffer = _torchrl_buffer(case.stored, case.batch)
    return sampler(buffer.sample, lambda out: _columns(out, SAME_NAMES), case.batches)


def _torchrl_prioritized(case: Prioritized) -> Sampler:
    with warnings_of_peers_ignored():
        import torch
        from torchrl.data import LazyTensorStorage, PrioritizedReplayBuffer
        from torchrl.data.replay_buffers.samplers import prioritized

        if prioritized.SumSegmentTreeFp32 is None:
            raise ImportError("its compiled sum trees do not load with this version of PyTorch")
        torch.manual_seed(0)
        buffer = PrioritizedReplayBuffer(
            alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(case.count), batch_size=case.batch
        )
        buffer.extend(_tensordict(case.stored))
    fresh = torch.from_numpy(case.fresh)

    def draw() -> Any:
        return buffer.sample(return_info=True)

    def update(indices: np.ndarray, priorities: np.ndarray) -> None:
        buffer.update_priority(torch.from_numpy(indices), torch.from_numpy(priorities))

    def read(output: Any) -> Arrays:
        drawn, info = output
        beside = {"indices": "index", "weights": "priority_weight"}
        return _columns(drawn, SAME_NAMES) | _columns(info, beside)

    update(np.arange(case.count), case.priorities)
    return Sampler(lambda: buffer.update_priority(draw()[1]["index"], fresh), read, draw, update)


def _torchrl_adding(case: Adding) -> Call:
    buffer, step = _torchrl_buffer(case.stored), _tensordict(case.step)
    return Call(lambda: buffer.extend(step), lambda _: _columns(buffer[:], SAME_NAMES))


def _tianshou_fields(arrays: Arrays) -> dict[str, Any]:
    fields = {theirs: arrays[ours] for ours, theirs in TIANSHOU_NAMES.items()}
    ended = fields["terminated"]
    return fields | {"truncated": np.zeros_like(ended), "done": ended}


def _read_tianshou(output: Any) -> Arrays:
    batch, indices = output
    beside = {"weights": "weight"} if "weight" in batch.get_keys() else {}
    return _columns(batch, TIANSHOU_NAMES | beside) | {"indices": indices}


def _tianshou(case: Uniform) -> Sampler:
    with warnings_of_peers_ignored():
        from tianshou.data import ReplayBuffer

    buffer = ReplayBuffer.from_data(**_tianshou_fields(case.stored))
    return sampler(lambda: buffer.sample(case.batch), _read_tianshou, case.batches)


def _tianshou_prioritized(case: Prioritized) -> Sampler:
    with warnings_of_peers_ignored():
        from tianshou.data import PrioritizedReplayBuffer, ReplayBuffer

    _seed_global_generator()
    buffer = PrioritizedReplayBuffer(case.count, alpha=ALPHA, beta=BETA)
    buffer.update(ReplayBuffer.from_data(**_tianshou_fields(case.stored)))
    buffer.update_weight(np.arange(case.count), case.priorities)
    fresh = case.fresh

    def draw() -> Any:
        return buffer.sample(case.batch)

    return Sampler(
        lambda: buffer.update_weight(draw()[1], fresh), _read_tianshou, draw, buffer.update_weight
    )


def _tianshou_adding(case: Adding) -> Call:
    with warnings_of_peers_ignored():
        from tianshou.data import Batch, VectorReplayBuffer

    buffer = VectorReplayBuffer(case.count, case.envs)
    for arrays in case.steps():
        buffer.add(Batch(**_tianshou_fields(arrays)))  # pyright: ignore[reportArgumentType]
    step: Any = Batch(**_tianshou_fields(case.step))
    return Call(lambda: buffer.add(step), lambda _: _columns(buffer[:], TIANSHOU_NAMES))


def _filled(stored: Arrays, batch: int, prioritized: bool = False) -> tuple[Any, Any]:
    """Return a flashbax buffer and its full state."""
    with warnings_of_peers_ignored():
        import flashbax
        import jax

    count = len(stored["obs"])
    sizes: dict[str, Any] = {"max_length": count, "min_length": 1, "sample_batch_size": batch}
    if prioritized:
        make = flashbax.make_prioritised_item_buffer
        buffer = make(**sizes, add_batches=True, priority_exponent=ALPHA, device="cpu")
    else:
        buffer = flashbax.make_item_buffer(**sizes, add_batches=True)
    rows = {name: jax.numpy.asarray(values) for name, values in stored.items()}
    state = buffer.init({name: values[0] for name, values in rows.items()})
    return buffer, jax.jit(buffer.add, donate_argnums=0)(state, rows)


def _as_numpy(output: Any) -> Arrays:
    return {name: np.array(values) for name, values in output.items()}


def _uniform(case: Uniform) -> Sampler:
    buffer, state = _filled(case.stored, case.batch)
    import jax

    @jax.jit
    def sample(state, key):
        key, own = jax.random.split(key)
        return buffer.sample(state, own).experience, key

    key = jax.random.key(0)

    def draw() -> Any:
        nonlocal key
        batch, key = sample(state, key)
        return jax.block_until_ready(batch)

    return sampler(draw, _as_numpy, case.batches)


def weighted(sample: Any, count: int) -> dict[str, Any]:
    """Return a prioritized sample with the weights, which flashbax leaves to its callers."""
    weights = (count * sample.probabilities) ** -BETA
    return sample.experience | {"indices": sample.indices, "weights": weights / weights.max()}


def _prioritized(case: Prioritized) -> Sampler:
    buffer, state = _filled(case.stored, case.batch, prioritized=True)
    import jax

    @jax.jit
    def sample(state, key):
        key, own = jax.random.split(key)
        return weighted(buffer.sample(state, own), case.count), key

    set_priorities = jax.jit(buffer.set_priorities, donate_argnums=0)
    key, fresh = jax.random.key(0), jax.numpy.asarray(case.fresh)

    def draw() -> Any:
        nonlocal key
        batch, key = sample(state, key)
        return jax.block_until_ready(batch)

    def update(indices: Any, priorities: Any) -> None:
        nonlocal state
        state = jax.block_until_ready(set_priorities(state, indices, priorities))

    update(np.arange(case.count), case.priorities)
    return Sampler(lambda: update(draw()["indices"], fresh), _as_numpy, draw, update)


def _adding(case: Adding) -> Call:
    buffer, state = _filled(case.stored, 1)
    import jax

    add, step = jax.jit(buffer.add, donate_argnums=0), case.step

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(add(state, step))

    def held(_: None) -> Arrays:
        return {name: np.array(values[0]) for name, values in state.experience.items()}

    return Call(run, held)


def _scanned(case: Scanned) -> Sampler:
    buffer, state = _filled(case.stored, case.batch, case.prioritized)

    def sample(state, key):
        drawn = buffer.sample(state, key)
        return weighted(drawn, case.count) if case.prioritized else drawn.experience

    update = buffer.set_priorities if case.prioritized else None
    return scanned(case, state, Steps(buffer.add, sample, update))


def _peer(name: str, prepare: Callable[[Any], Call], note: str = "") -> Contender:
    return Contender(name, LIBRARIES[name], "peer", prepare, note=note)


UNIFORM_PEERS = (
    _peer(CPPRB, _cpprb, "NumPy arrays; scalars as [B, 1]"),
    _peer(BASELINES, _baselines, "gives tensors, [B, 1] each"),
    _peer(TORCHRL, _torchrl, "ReplayBuffer on LazyTensorStorage, no prefetch; gives a tensordict"),
    _peer(
        TIANSHOU, _tianshou,
        "gives a Batch with truncated, done, info and policy beside the five fields",
    ),
)  # fmt: skip
PRIORITIZED_PEERS = (
    _peer(CPPRB, _cpprb_prioritized, "indices and weights are views that the next draw overwrites"),
    _peer(TORCHRL, _torchrl_prioritized, "sample(return_info=True)"),
    _peer(TIANSHOU, _tianshou_prioritized),
)
ADDING_PEERS = (
    _peer(CPPRB, _cpprb_adding, "one add of 64 rows"),
    _peer(BASELINES, _baselines_adding, "n_envs=64; an empty info for each environment"),
    _peer(TORCHRL, _torchrl_adding, "extend; its tensordict was there"),
    _peer(
        TIANSHOU, _tianshou_adding,
        "VectorReplayBuffer, one buffer for each environment; its Batch was there",
    ),
)  # fmt: skip
FLASHBAX_UNIFORM = _peer(FLASHBAX, _uniform, "jitted; a key split in each call")
FLASHBAX_PRIORITIZED = _peer(
    FLASHBAX, _prioritized, "jitted sample and set_priorities; weights from its probabilities"
)
FLASHBAX_ADDING = _peer(FLASHBAX, _adding, "jitted add, state donated")
FLASHBAX_SCANNED = _peer(FLASHBAX, _scanned, "item and prioritised item buffer")
