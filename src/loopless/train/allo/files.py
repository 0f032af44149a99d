"""Trajectories and weights of a user's own, from NumPy's files; all that is wrong told at once.

    np.savez("mine.npz", obs=obs, terminals=marks)                      # flat: [steps, ...]
    np.savez("mine.npz", obs=obs, terminals=marks, lengths=lengths)     # flat, in several rows
    np.savez("mine.npz", obs=obs, terminals=marks, lengths=lengths)     # padded: [rows, steps, ...]

Imports NumPy and `replay`. Tests: `tests/train/test_allo_data.py`.
"""

from pathlib import Path
from typing import Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.runs.failures import BadConfig

FIELDS = ("obs", "terminals", "lengths", "weights")
WIDEST = 256  # bytes of an observation whose copies are looked for


class Trajectories(NamedTuple):
    """Distinct observations [states, ...], the steps as rows of them, weights of the steps."""

    table: np.ndarray
    buffer: EpisodicReplayBuffer
    weights: np.ndarray | None


class Flat(NamedTuple):
    """Rows one after the other: [steps, ...] of each, and how long the rows are."""

    obs: np.ndarray
    terminals: np.ndarray | None
    weights: np.ndarray | None
    lengths: np.ndarray


def read(
    path: Path,
    convention: Literal["double", "single", "none"],
    law: Literal["transition", "episode"],
) -> Trajectories:
    """The trajectories of an .npz file; BadConfig if they cannot be learned from."""
    arrays = _load(path)
    wrong = _shape_problems(arrays, convention)
    flat = None if wrong else _flat(arrays)
    wrong += [] if flat is None else _value_problems(flat)
    if wrong or flat is None:
        raise BadConfig([f"{path}: {problem}" for problem in wrong])
    table, numbers = _distinct(flat.obs)
    buffer = EpisodicReplayBuffer(
        len(numbers), {"obs": ((), np.int32)}, terminals=convention, law=law
    )
    ends = np.cumsum(flat.lengths)
    for row, (begin, end) in enumerate(zip(ends - flat.lengths, ends, strict=True)):
        marks = None if flat.terminals is None else flat.terminals[begin:end]
        try:
            buffer.add_episode(obs=numbers[begin:end], terminals=marks)
        except ValueError as error:
            said = str(error).removeprefix("EpisodicReplayBuffer.add_episode: ")
            advice = "--terminals says how ends are marked: double, single or none."
            raise BadConfig([f"{path}, row {row}: {said} {advice}"]) from None
    return Trajectories(table, buffer, flat.weights)


def read_weights(path: Path, states: int) -> np.ndarray:
    """[states] numbers from 0 up, of an .npy file."""
    try:
        found = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise BadConfig(
            [f'weights is "{path}", neither visits nor uniform nor an .npy file. {_reason(error)}']
        ) from None
    fits = isinstance(found, np.ndarray) and found.shape == (states,) and _are_weights(found)
    if not fits or not found.any():
        raise BadConfig([f"{path} does not hold [{states}] finite numbers from 0 up, one a state."])
    return found.astype(np.float64)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        file = np.load(path)
        if isinstance(file, np.ndarray):
            raise BadConfig([f"{path} is no .npz: save with np.savez(path, obs=..., ...)."])
        with file:
            return {name: file[name] for name in file.files if name in FIELDS}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise BadConfig([f"cannot read {path}. {_reason(error)}"]) from None


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "There is no such file."
    return f"{getattr(error, 'strerror', None) or error}".rstrip(".") + "."


def _shape_problems(arrays: dict[str, np.ndarray], convention: str) -> list[str]:
    """What is missing or does not fit together."""
    if "obs" not in arrays:
        return ["there is no obs: the observations, [steps, ...] or [rows, steps, ...]."]
    obs, lengths = arrays["obs"], arrays.get("lengths")
    if obs.dtype.kind not in "iufb" or not obs.size:
        return [f"obs is {obs.dtype} {obs.shape}; it is numbers, [steps, ...]."]
    wrong = []
    if "terminals" not in arrays and convention != "none":
        wrong.append(
            "there are no terminals, which say where episodes end. Add them, one for each of obs; "
            "or say --terminals none if every row is one episode."
        )
    leading = _leading(arrays)
    for name in ("terminals", "weights"):
        if name in arrays and arrays[name].shape not in (leading, (*leading, 1)):
            wrong.append(f"{name} has shape {arrays[name].shape}; beside obs it is {leading}.")
    if lengths is None:
        return wrong
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not (lengths >= 0).all():
        wrong.append(f"lengths is {lengths.dtype} {lengths.shape}; it is counts, [rows].")
    elif len(leading) == 2 and (len(lengths) != leading[0] or lengths.max() > leading[1]):
        wrong.append(
            f"lengths has {len(lengths)} rows of up to {lengths.max()} steps; obs has {leading[0]} "
            f"of {leading[1]}."
        )
    elif len(leading) == 1 and lengths.sum() != leading[0]:
        wrong.append(f"lengths sum up to {lengths.sum()}; obs has {leading[0]} steps.")
    return wrong


def _leading(arrays: dict[str, np.ndarray]) -> tuple[int, ...]:
    """The leading axes of obs: (rows, steps) if terminals have two, else (steps,).

    Without terminals, obs is padded if there is a length for each of it.
    """
    obs, lengths = arrays["obs"], arrays.get("lengths")
    if (marks := arrays.get("terminals")) is not None:
        padded = marks.ndim > 1 and marks.shape[1:] != (1,)
    else:
        padded = lengths is not None and len(lengths) == len(obs)
    return obs.shape[:2] if padded and obs.ndim > 1 else obs.shape[:1]


def _flat(arrays: dict[str, np.ndarray]) -> Flat:
    leading, lengths = _leading(arrays), arrays.get("lengths")
    if len(leading) == 1:
        lengths = np.array([leading[0]]) if lengths is None else lengths
        counts = np.ones(leading, bool)
    else:
        lengths = np.full(leading[0], leading[1]) if lengths is None else lengths
        counts = np.arange(leading[1]) < lengths[:, None]

    def beside(name: str) -> np.ndarray | None:
        return arrays[name].reshape(leading)[counts] if name in arrays else None

    kept = lengths[lengths > 0].astype(np.int64)
    return Flat(arrays["obs"][counts], beside("terminals"), beside("weights"), kept)


def _value_problems(flat: Flat) -> list[str]:
    wrong = []
    finite = np.isfinite(flat.obs.reshape(len(flat.obs), -1)).all(axis=1)
    bad = np.flatnonzero(np.logical_not(finite))
    if bad.size:
        wrong.append(
            f"{bad.size} of {len(flat.obs)} observations are not finite, the first at step "
            f"{bad[0]}. Leave them out."
        )
    if flat.weights is not None and not (_are_weights(flat.weights) and flat.weights.any()):
        wrong.append("weights are finite numbers from 0 up, not all 0.")
    return wrong


def _are_weights(found: np.ndarray) -> bool:
    return found.dtype.kind in "iufb" and bool(((found >= 0) & (found < np.inf)).all())


def _distinct(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct observations, and which of them each is; all of them, if they are large."""
    obs = np.ascontiguousarray(obs if obs.dtype == np.uint8 else obs.astype(np.float32))
    rows = obs.reshape(len(obs), -1)
    size = rows.shape[1] * rows.itemsize
    if size > WIDEST:
        return obs, np.arange(len(obs), dtype=np.int32)
    keys = rows.view(np.dtype((np.void, size))).reshape(-1)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return obs[first], numbers.reshape(-1).astype(np.int32)
