"""Read a user's trajectories and weights from NumPy files, and report all problems at once.

    np.savez("mine.npz", obs=obs, terminals=marks)                      # flat: [steps, ...]
    np.savez("mine.npz", obs=obs, terminals=marks, lengths=lengths)     # flat, in several rows
    np.savez("mine.npz", obs=obs, terminals=marks, lengths=lengths)     # padded: [rows, steps, ...]

`data.py` calls these functions.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from loopless.files.numpy_files import read_npy, read_npz
from loopless.process import free_memory_bytes
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.runs.failures import BadConfig

FIELDS = ("obs", "terminals", "lengths", "weights")
LARGEST_FILE = 1 << 36  # bytes of arrays, where the system does not say how much memory is free
COMPARED_BYTES = 256  # observations up to this size are searched for equal ones


class Trajectories(NamedTuple):
    """The distinct observations [states, ...]; the steps, as rows of these; the steps' weights."""

    table: np.ndarray
    buffer: EpisodicReplayBuffer
    weights: np.ndarray | None


class FlatSteps(NamedTuple):
    """All rows one after the other, [steps, ...] each, and the length of each row."""

    obs: np.ndarray
    terminals: np.ndarray | None
    weights: np.ndarray | None
    lengths: np.ndarray


def read_trajectories(
    path: Path,
    convention: Literal["double", "single", "none"],
    law: Literal["transition", "episode"],
) -> Trajectories:
    """Read the trajectories of an .npz file; raise BadConfig if they cannot be learned from."""
    arrays = _load(path)
    if problems := _shape_problems(arrays, convention):
        raise BadConfig([f"{path}: {problem}" for problem in problems])
    steps = _flatten(arrays)
    if problems := _value_problems(steps):
        raise BadConfig([f"{path}: {problem}" for problem in problems])
    table, numbers = _number_observations(steps.obs)
    buffer = EpisodicReplayBuffer(
        len(numbers), {"obs": ((), np.int32)}, terminals=convention, law=law
    )
    ends = np.cumsum(steps.lengths)
    for row, (begin, end) in enumerate(zip(ends - steps.lengths, ends, strict=True)):
        marks = None if steps.terminals is None else steps.terminals[begin:end]
        try:
            buffer.add_episode(obs=numbers[begin:end], terminals=marks)
        except ValueError as error:
            reason = str(error).removeprefix("EpisodicReplayBuffer.add_episode: ")
            advice = "--terminals says how ends are marked: double, single or none."
            raise BadConfig([f"{path}, row {row}: {reason} {advice}"]) from None
    return Trajectories(table, buffer, steps.weights)


def read_state_weights(path: Path, states: int) -> np.ndarray:
    """Read [states] numbers of at least 0 from an .npy file."""
    try:
        weights = read_npy(path, _free_bytes())
    except (OSError, ValueError) as error:
        raise BadConfig(
            [f'weights must be visits, uniform or an .npy file; received "{path}". {_why(error)}']
        ) from None
    fits = weights.shape == (states,) and _are_weights(weights)
    if not fits or not weights.any():
        raise BadConfig(
            [f"{path} must hold [{states}] finite numbers of at least 0, one for each state."]
        )
    return weights.astype(np.float64)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_npz(path, _free_bytes(), FIELDS)
    except (OSError, ValueError) as error:
        advice = "Save it by np.savez(path, obs=…, …)."
        raise BadConfig([f"cannot read {path}: {_why(error)} {advice}"]) from None


def _free_bytes() -> int:
    """Return how many bytes a user's arrays may have: what is free, less a copy of them."""
    free = free_memory_bytes()
    return LARGEST_FILE if free is None else free // 2


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "There is no such file."
    return f"{getattr(error, 'strerror', None) or error}".rstrip(".") + "."


def _shape_problems(arrays: dict[str, np.ndarray], convention: str) -> list[str]:
    """Return which arrays are missing or do not fit together."""
    if "obs" not in arrays:
        return ["there is no obs: the observations, [steps, ...] or [rows, steps, ...]."]
    obs, lengths = arrays["obs"], arrays.get("lengths")
    if obs.dtype.kind not in "iufb" or not obs.size:
        return [f"obs must be numbers [steps, ...]; received {obs.dtype} {obs.shape}."]
    problems = []
    if "terminals" not in arrays and convention != "none":
        problems.append(
            "there are no terminals, which say where episodes end. Add one for each observation, "
            "or pass --terminals none if every row is one episode."
        )
    leading = _leading_axes(arrays)
    for name in ("terminals", "weights"):
        if name in arrays and arrays[name].shape not in (leading, (*leading, 1)):
            problems.append(
                f"{name} must have the shape {leading} of obs; received {arrays[name].shape}."
            )
    if lengths is None:
        return problems
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not (lengths >= 0).all():
        problems.append(f"lengths must be counts [rows]; received {lengths.dtype} {lengths.shape}.")
    elif len(leading) == 2 and (len(lengths) != leading[0] or lengths.max() > leading[1]):
        problems.append(
            f"lengths has {len(lengths)} rows of up to {lengths.max()} steps, but obs has "
            f"{leading[0]} rows of {leading[1]}."
        )
    elif len(leading) == 1 and lengths.sum() != leading[0]:
        problems.append(f"lengths sum up to {lengths.sum()}, but obs has {leading[0]} steps.")
    return problems


def _leading_axes(arrays: dict[str, np.ndarray]) -> tuple[int, ...]:
    """Return the leading axes of obs: (rows, steps) if terminals have two, else (steps,).

    Without terminals, obs is padded if it has as many rows as there are lengths.
    """
    obs, lengths = arrays["obs"], arrays.get("lengths")
    if (marks := arrays.get("terminals")) is not None:
        is_padded = marks.ndim > 1 and marks.shape[1:] != (1,)
    else:
        is_padded = lengths is not None and len(lengths) == len(obs)
    return obs.shape[:2] if is_padded and obs.ndim > 1 else obs.shape[:1]


def _flatten(arrays: dict[str, np.ndarray]) -> FlatSteps:
    """Return all steps one after the other, without padding."""
    leading, lengths = _leading_axes(arrays), arrays.get("lengths")
    if len(leading) == 1:
        lengths = np.array([leading[0]]) if lengths is None else lengths
        is_step = np.ones(leading, bool)
    else:
        lengths = np.full(leading[0], leading[1]) if lengths is None else lengths
        is_step = np.arange(leading[1]) < lengths[:, None]

    def flatten(name: str) -> np.ndarray | None:
        return arrays[name].reshape(leading)[is_step] if name in arrays else None

    lengths = lengths[lengths > 0].astype(np.int64)
    return FlatSteps(arrays["obs"][is_step], flatten("terminals"), flatten("weights"), lengths)


def _value_problems(steps: FlatSteps) -> list[str]:
    problems = []
    finite = np.isfinite(steps.obs.reshape(len(steps.obs), -1)).all(axis=1)
    bad = np.flatnonzero(np.logical_not(finite))
    if bad.size:
        problems.append(
            f"{bad.size} of {len(steps.obs)} observations are not finite, the first at step "
            f"{bad[0]}. Leave them out."
        )
    if steps.weights is not None and not (_are_weights(steps.weights) and steps.weights.any()):
        problems.append("weights must be finite numbers of at least 0, and not all 0.")
    return problems


def _are_weights(values: np.ndarray) -> bool:
    return values.dtype.kind in "iufb" and bool(((values >= 0) & (values < np.inf)).all())


def _number_observations(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct observations, and for each step the number of its observation.

    Observations of more than `COMPARED_BYTES` count as distinct.
    """
    obs = np.ascontiguousarray(obs if obs.dtype == np.uint8 else obs.astype(np.float32))
    rows = obs.reshape(len(obs), -1)
    size = rows.shape[1] * rows.itemsize
    if size > COMPARED_BYTES:
        return obs, np.arange(len(obs), dtype=np.int32)
    keys = rows.view(np.dtype((np.void, size))).reshape(-1)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return obs[first], numbers.reshape(-1).astype(np.int32)
