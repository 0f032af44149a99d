"""What ALLO learns from: recorded trajectories of a grid or of a file, and draws from them.

Each step of a trajectory is stored as a number: a row of the table of distinct observations. So a
batch is a few integers however large an observation is, and if there are few distinct states each
can be encoded once. `files.py` reads the trajectories of a user.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loopless.compiled.tree import balance
from loopless.envs.grids.collect import collect
from loopless.envs.grids.laplacian import Eigenpairs, Pairs, eigenpairs, episode_pairs
from loopless.envs.grids.world import GridWorld, make_grid
from loopless.replay.device import EpisodicBuffer, EpisodicState, random_words
from loopless.replay.device.episodes import draw_gaps
from loopless.replay.device.layout import take
from loopless.replay.device.words import below, fraction
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.runs.failures import BadConfig
from loopless.train.allo import files
from loopless.train.allo.config import ALLO


@dataclass(frozen=True, eq=False)
class Source:
    """Everything known before training. There is one buffer for each seed, or one for all."""

    table: np.ndarray  # [states, ...]: the distinct observations
    buffers: tuple[EpisodicReplayBuffer, ...]
    weights: tuple[np.ndarray | None, ...]  # of the steps in each buffer
    visits: np.ndarray  # [states]: how often each was observed
    world: GridWorld | None = None
    truth: Eigenpairs | None = None

    @cached_property
    def digest(self) -> np.ndarray:
        """A fingerprint of everything that is drawn from, [32] bytes."""
        sha256 = hashlib.sha256(np.ascontiguousarray(self.table).data)
        for buffer, weights in zip(self.buffers, self.weights, strict=True):
            sha256.update(np.ascontiguousarray(buffer["obs"]).data)
            sha256.update(np.ascontiguousarray(buffer._arena.pairs).data)
            sha256.update(b"" if weights is None else np.ascontiguousarray(weights).data)
        return np.frombuffer(sha256.digest(), np.uint8)


def read_source(config: ALLO) -> Source:
    """Walk in the grid or read the file that `config` names; raise BadConfig if it has problems."""
    source = _walk_in_grid(config) if config.data is None else _read_file(config, config.data)
    states, starts = len(source.table), min(buffer.starts for buffer in source.buffers)
    problems = []
    if config.components > states:
        problems.append(
            f"components must be at most the {states} states there are; received "
            f"{config.components}."
        )
    if config.batch_size > starts:
        problems.append(
            f"batch_size must be at most the {starts} starts of pairs there are; received "
            f"{config.batch_size}."
        )
    if problems:
        raise BadConfig(problems)
    return source


def _walk_in_grid(config: ALLO) -> Source:
    # Goals would end episodes, and the eigenvectors of such a walk are not known exactly.
    world = make_grid(config.grid, doors=config.doors, door_seed=config.door_seed, goals=())
    walks = [
        collect(
            world, envs=config.envs, steps=config.env_steps, seed=config.seed + i,
            max_episode_length=config.episode_length,
        )
        for i in range(config.seeds)
    ]  # fmt: skip
    buffers = tuple(
        EpisodicReplayBuffer.from_padded(walk.obs, walk.terminals, walk.lengths, law=config.law)
        for walk in walks
    )
    visits = np.sum([np.bincount(b["obs"], minlength=world.states) for b in buffers], 0)
    pairs = episode_pairs(
        world.transition_matrix(), world.starts, config.discount, config.episode_length
    )
    factors = _state_factors(config, pairs.weights, world.states)
    truth = None
    if config.max_gap is None:
        weights = pairs.weights if factors is None else pairs.weights * factors
        truth = eigenpairs(Pairs(pairs.kernel, weights / weights.sum()))
        truth = truth.first(min(config.components, world.states))
    return Source(
        _grid_observations(world, config.inputs),
        buffers,
        tuple(None if factors is None else factors[b["obs"]] for b in buffers),
        visits.astype(np.int64),
        world,
        truth,
    )


def _grid_observations(world: GridWorld, inputs: str) -> np.ndarray:
    """Return what an encoder sees of each state, [states, ...]."""
    if inputs == "xy":
        return world.xy("centred")
    return world.one_hot() if inputs == "onehot" else world.pictures()


def observation_type(config: ALLO) -> tuple[tuple[int, ...], str]:
    """Return the shape and the type of one observation."""
    if config.data is not None:
        table = files.read_trajectories(config.data, config.terminals, config.law).table
    else:
        table = _grid_observations(make_grid(config.grid, goals=()), config.inputs)
    return table.shape[1:], table.dtype.name


def _read_file(config: ALLO, path: Path) -> Source:
    table, buffer, weights = files.read_trajectories(path, config.terminals, config.law)
    visits = np.bincount(buffer["obs"], minlength=len(table))
    factors = _state_factors(config, visits, len(table))
    if factors is not None:
        weights = factors[buffer["obs"]] * (1 if weights is None else weights)
    return Source(table, (buffer,), (weights,), visits.astype(np.int64))


def _state_factors(config: ALLO, visits: np.ndarray, states: int) -> np.ndarray | None:
    """Return a factor for the probability of drawing each state; None changes nothing."""
    if config.weights == "visits":
        return None
    if config.weights == "uniform":
        return 1 / np.maximum(visits, np.min(visits[visits > 0]))
    return files.read_state_weights(Path(config.weights), states)


# --- drawing, compiled ---------------------------------------------------------------------------


class Data(NamedTuple):
    """What a compiled step draws from: the trajectories, and how likely their starts are."""

    steps: EpisodicState  # whose "obs" are rows of the table of states
    aliases: Any  # ([starts], [starts]): the chance to keep a start, and which to take instead
    law: jax.Array  # [states]: how often each is drawn as a start


class Batch(NamedTuple):
    """The states that an update learns from, as rows of the table of states; [batch_size] each."""

    states: jax.Array
    later: jax.Array  # some steps after `states`
    others: jax.Array  # drawn independently of both
    constrained: jax.Array | None = None  # drawn independently of all; if None, `states` are used


@dataclass(frozen=True)
class Sampler:
    """Pure functions that draw rows of the table of states."""

    config: ALLO
    buffer: EpisodicBuffer

    def draw(self, data: Data, key: jax.Array) -> Batch:
        """Draw pairs of states, and one or two further batches of states."""
        apart = self.config.constrains_apart
        words = random_words(key, (7 if apart else 5, self.config.batch_size))
        states, later = self.pairs(data, words[:, :3])
        others = self.starts(data, words[:, 3:5])
        return Batch(states, later, others, self.starts(data, words[:, 5:]) if apart else None)

    def pairs(self, data: Data, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return states, and states a truncated geometric gap later, by random words [2, 3, n]."""
        starts, room = self.locate(data, words)
        gap = draw_gaps(words[:, 2], room, self.config.discount, self.config.max_gap)
        return self._states(data, starts), self._states(data, starts + gap)

    def starts(self, data: Data, words: jax.Array) -> jax.Array:
        """Return states that have a later one, by random words [2, 2, n]."""
        return self._states(data, self.locate(data, words)[0])

    def locate(self, data: Data, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the flat indices of starts, and how many steps follow each."""
        if data.aliases is None:
            return self.buffer.locate(data.steps, words)
        chances, alternatives = data.aliases
        place = below(words[:, 1], len(chances))
        keep = fraction(words[:, 0], chances.dtype) < take(chances, place)
        place = jnp.where(keep, place, take(alternatives, place))
        pair = take(data.steps.pairs, place)
        return pair[..., 0].astype(jnp.uint32), pair[..., 1]

    def _states(self, data: Data, indices: jax.Array) -> jax.Array:
        steps = data.steps
        return self.buffer.layout.read(steps.packed, steps.large, indices, ["obs"])["obs"]


def move_to_device(config: ALLO, source: Source) -> tuple[Sampler, list[Data]]:
    """Return the sampler, and what it draws from, for each buffer of the source."""
    data, buffer = [], None
    for host_buffer, weights in zip(source.buffers, source.weights, strict=True):
        buffer, state = EpisodicBuffer.from_host(host_buffer, max_rows=host_buffer.rows)
        aliases = None if weights is None else _alias_table(host_buffer, weights)
        data.append(Data(state, aliases, jnp.asarray(_start_law(source, host_buffer, weights))))
    assert buffer is not None
    return Sampler(config, buffer), data


def _start_law(
    source: Source, buffer: EpisodicReplayBuffer, weights: np.ndarray | None
) -> np.ndarray:
    """Return how often each state is drawn as a start, float32 [states]."""
    starts = buffer._arena.pairs[: buffer.starts, 0]
    chances = np.ones(len(starts)) if weights is None else weights[starts]
    if buffer.law == "episode":
        rows = buffer.rows_of(starts)
        chances = 1 / np.bincount(rows, minlength=buffer.rows)[rows]
    law = np.bincount(buffer["obs"][starts], chances, len(source.table))
    return (law / law.sum()).astype(np.float32)


def _alias_table(buffer: EpisodicReplayBuffer, weights: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Return a table for drawing starts in proportion to `weights` [steps] by the alias method."""
    starts = buffer.starts
    pairs = np.ascontiguousarray(buffer._arena.pairs[:starts])
    aliases, total = np.zeros((starts, 2)), np.zeros(1)
    balance(weights.astype(np.float64), pairs, np.array([0, starts]), aliases, total)
    if not total[0] > 0:
        raise BadConfig(["weights must be above 0 for some state that has a later one."])
    return jnp.asarray(aliases[:, 0], jnp.float32), jnp.asarray(aliases[:, 1], jnp.uint32)
