"""What ALLO learns from: recorded trajectories of a grid or of a file, and draws from them.

A step of a trajectory is a number: a row of the table of distinct observations. So a batch is a
few integers whatever an observation weighs, and finitely many states can be encoded once each.
Imports NumPy, JAX and everything below `train`. Files are read by `allo_files`. Tests:
`tests/train/test_allo_data.py`.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs.grids.collect import collect
from loopless.envs.grids.laplacian import Eigenpairs, Pairs, eigenpairs, episode_pairs
from loopless.envs.grids.world import GridWorld, make_grid
from loopless.replay.device import EpisodicBuffer, EpisodicState
from loopless.replay.device.episodes import draw_gaps
from loopless.replay.device.layout import take
from loopless.replay.device.words import below, fraction
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.runs.failures import BadConfig
from loopless.train.allo import files as allo_files
from loopless.train.allo.config import ALLO


class Data(NamedTuple):
    """What a compiled step draws from: the trajectories, and how likely their starts are."""

    steps: EpisodicState  # whose "obs" are rows of the table of states
    aliases: Any  # ([starts], [starts]): the chance to keep a start, and whom to take instead
    law: jax.Array  # [states]: how often each is drawn


@dataclass(frozen=True, eq=False)
class Source:
    """All that is known before training. `buffers` has one for each seed, or one for all."""

    table: np.ndarray  # [states, ...]: the distinct observations
    buffers: tuple[EpisodicReplayBuffer, ...]
    weights: tuple[np.ndarray | None, ...]  # of each buffer's steps
    visits: np.ndarray  # [states]: how often each was observed
    world: GridWorld | None = None
    truth: Eigenpairs | None = None

    @cached_property
    def digest(self) -> np.ndarray:
        """A fingerprint of everything that is drawn from, [32] bytes."""
        found = hashlib.sha256(np.ascontiguousarray(self.table).data)
        for buffer, weights in zip(self.buffers, self.weights, strict=True):
            found.update(np.ascontiguousarray(buffer["obs"]).data)
            found.update(np.ascontiguousarray(buffer._store.pairs).data)
            found.update(b"" if weights is None else np.ascontiguousarray(weights).data)
        return np.frombuffer(found.digest(), np.uint8)


def source_of(config: ALLO) -> Source:
    """What `config` names, collected or read; BadConfig with all that is wrong with it."""
    source = _of_grid(config) if config.data is None else _of_file(config, config.data)
    states, starts = len(source.table), min(buffer.starts for buffer in source.buffers)
    wrong = []
    if config.components > states:
        wrong.append(f"components is {config.components}; there are {states} states.")
    if config.batch_size > starts:
        wrong.append(f"batch_size is {config.batch_size}; there are {starts} starts of pairs.")
    if wrong:
        raise BadConfig(wrong)
    return source


def _of_grid(config: ALLO) -> Source:
    # Goals end episodes: a walk that ends there is not the one whose eigenvectors are known.
    world = make_grid(config.grid, doors=config.doors, door_seed=config.door_seed, goals=())
    states = np.arange(world.states, dtype=np.int32)
    found = [
        collect(
            world, envs=config.envs, steps=config.env_steps, seed=config.seed + i,
            max_episode_length=config.episode_length,
        )
        for i in range(config.seeds)
    ]  # fmt: skip
    buffers = tuple(
        EpisodicReplayBuffer.from_padded(x.obs, x.terminals, x.lengths, law=config.law)
        for x in found
    )
    visits = np.sum([np.bincount(b["obs"], minlength=len(states)) for b in buffers], 0)
    pairs = episode_pairs(
        world.transition_matrix(), world.starts, config.discount, config.episode_length
    )
    factors = _factors(config, pairs.weights, len(states))
    truth = None
    if config.max_gap is None:
        weighed = pairs.weights if factors is None else pairs.weights * factors
        truth = eigenpairs(Pairs(pairs.kernel, weighed / weighed.sum()))
    return Source(
        _inputs(world, config.inputs),
        buffers,
        tuple(None if factors is None else factors[b["obs"]] for b in buffers),
        visits.astype(np.int64),
        world,
        truth if truth is None else truth.first(min(config.components, len(states))),
    )


def _inputs(world: GridWorld, kind: str) -> np.ndarray:
    """[states, ...]: what an encoder sees of each."""
    if kind == "xy":
        return world.xy("centred")
    return world.one_hot() if kind == "onehot" else world.pictures()


def observations_of(config: ALLO) -> tuple[tuple[int, ...], str]:
    """The shape and the type of one observation."""
    if config.data is not None:
        table = allo_files.read(config.data, config.terminals, config.law).table
    else:
        table = _inputs(make_grid(config.grid, goals=()), config.inputs)
    return table.shape[1:], table.dtype.name


def _of_file(config: ALLO, path: Path) -> Source:
    read = allo_files.read(path, config.terminals, config.law)
    table, buffer = read.table, read.buffer
    counts = np.bincount(buffer["obs"], minlength=len(table))
    factors = _factors(config, counts, len(table))
    weights = read.weights
    if factors is not None:
        weights = factors[buffer["obs"]] * (1 if weights is None else weights)
    return Source(table, (buffer,), (weights,), counts.astype(np.int64))


def _factors(config: ALLO, visits: np.ndarray, states: int) -> np.ndarray | None:
    """[states]: what the chance of each state to be drawn is multiplied by; None if by nothing."""
    if config.weights == "visits":
        return None
    if config.weights == "uniform":
        return 1 / np.maximum(visits, np.min(visits[visits > 0]))
    return allo_files.read_weights(Path(config.weights), states)


# --- drawing, compiled ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampler:
    """Pure functions from random words to rows of the table."""

    buffer: EpisodicBuffer
    discount: float
    max_gap: int | None

    def pairs(self, data: Data, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A state, and one a truncated geometric gap later; words [2, 3, n]."""
        starts, room = self.locate(data, words)
        gap = draw_gaps(words[:, 2], room, self.discount, self.max_gap)
        return self._states(data, starts), self._states(data, starts + gap)

    def starts(self, data: Data, words: jax.Array) -> jax.Array:
        """States with a later one; words [2, 2, n]."""
        return self._states(data, self.locate(data, words)[0])

    def locate(self, data: Data, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Flat indices of starts, and how many steps follow each."""
        if data.aliases is None:
            return self.buffer.locate(data.steps, words)
        kept, instead = data.aliases
        place = below(words[:, 1], len(kept))
        keep = fraction(words[:, 0], kept.dtype) < take(kept, place)
        place = jnp.where(keep, place, take(instead, place))
        pair = take(data.steps.pairs, place)
        return pair[..., 0].astype(jnp.uint32), pair[..., 1]

    def _states(self, data: Data, indices: jax.Array) -> jax.Array:
        steps = data.steps
        return self.buffer.layout.read(steps.packed, steps.large, indices, ["obs"])["obs"]


def on_device(config: ALLO, source: Source) -> tuple[Sampler, list[Data]]:
    """The sampler, and for each of the source's buffers what it draws from."""
    found, handle = [], None
    for buffer, weights in zip(source.buffers, source.weights, strict=True):
        handle, state = EpisodicBuffer.from_host(buffer, max_rows=buffer.rows)
        aliases = None if weights is None else _aliases(buffer, weights)
        found.append(Data(state, aliases, jnp.asarray(_law(source, buffer, weights))))
    assert handle is not None
    return Sampler(handle, config.discount, config.max_gap), found


def _law(source: Source, buffer: EpisodicReplayBuffer, weights: np.ndarray | None) -> np.ndarray:
    """[states]: how often each is drawn as a start, float32."""
    starts = buffer._store.pairs[: buffer.starts, 0]
    chances = np.ones(len(starts)) if weights is None else weights[starts]
    if buffer.law == "episode":
        rows = buffer.rows_of(starts)
        chances = 1 / np.bincount(rows, minlength=buffer.rows)[rows]
    found = np.bincount(buffer["obs"][starts], chances, len(source.table))
    return (found / found.sum()).astype(np.float32)


def _aliases(buffer: EpisodicReplayBuffer, weights: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """A table by which all starts are drawn in proportion to `weights` [steps]."""
    from loopless.compiled.tree import balance

    starts = buffer.starts
    pairs = np.ascontiguousarray(buffer._store.pairs[:starts])
    aliases, total = np.zeros((starts, 2)), np.zeros(1)
    balance(weights.astype(np.float64), pairs, np.array([0, starts]), aliases, total)
    if not total[0] > 0:
        raise BadConfig(["weights are all 0 at states that have a later one."])
    return jnp.asarray(aliases[:, 0], jnp.float32), jnp.asarray(aliases[:, 1], jnp.uint32)
