"""The rollout buffer: what on-policy methods collect, estimate on, and train from once."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from loopless.replay.columns import (
    STORES,
    Columns,
    dtype_name,
    flatten,
    readable_bytes,
    unflatten,
)

STEP = ("rewards", "values", "terminated", "truncated")  # what every step brings beside the fields
ESTIMATES = ("advantages", "returns")
RESERVED = {*STEP, *ESTIMATES, "final_values", "bootstrapped", "valid", "env", "envs"}


class RolloutBuffer:
    """`steps` × `envs` transitions in arrays [steps, envs, ...], allocated once.

    `fields` names the caller's own data: {"obs": ((4,), np.float32), "actions": ((), "int64")};
    dicts may nest, and dtypes are NumPy's, PyTorch's or strings. Beside them the buffer owns
    rewards, values (`float_dtype`), terminated and truncated (bool), and what `finish` computes:

        buffer.add(obs=..., actions=..., rewards=..., values=..., terminated=..., truncated=...)
        steps, envs = buffer.pending()          # truncated rows: their successor is in no row
        buffer.bootstrap(value_net(final_obs))  # in that order; or final_values=... in add
        buffer.finish(last_values, gamma=0.99, lambda_=0.95)
        for batch in buffer.minibatches(256, epochs=4): ...
        buffer.clear()

    Each env has its own cursor, so columns may differ in length. Whatever is handed out holds 0,
    and false in `valid`, where nothing was added since `clear`. `buffer["obs"]` is a view: copy
    what must outlive the next `add` or `clear`. Adding never waits for the device.

    autoreset="next_step" is for vector environments that spend a step on the reset, as those of
    Gymnasium 1.x do by default: the row after an end is stored but not valid, and the value of a
    truncated row's successor is the next row's, so that nothing is ever pending. An end in the
    last row is remembered across `clear`.

    Batches are drawn by the buffer's own generator: one seed gives one order in both libraries.
    """

    def __init__(
        self,
        steps: int,
        envs: int,
        fields: Mapping[str, Any],
        *,
        library: Literal["numpy", "torch"] = "numpy",
        device: Any = None,
        float_dtype: Any = "float32",
        autoreset: Literal["same_step", "next_step"] = "same_step",
        seed: int = 0,
    ) -> None:
        for name, count, least in (("steps", steps, 1), ("envs", envs, 1), ("seed", seed, 0)):
            if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < least:
                raise ValueError(
                    f"RolloutBuffer: {name} is an integer from {least} up; received {count!r}."
                )
        for name, given, options in (
            ("library", library, tuple(STORES)),
            ("autoreset", autoreset, ("same_step", "next_step")),
        ):
            if given not in options:
                raise ValueError(
                    f"RolloutBuffer: {name}={given!r} is unknown; choose {' or '.join(options)}."
                )
        self._same_step = autoreset == "same_step"
        store = STORES[library](device)
        specs = _specs(fields, float_dtype, store, self._same_step)
        self._fields = [name for name in specs if name.split("/")[0] not in RESERVED]
        self._columns = Columns("RolloutBuffer", int(steps), int(envs), specs, store)
        self._store = store
        self._previous_end = store.zeros((int(envs),), store.dtype("bool"))
        self._finished = False
        self._seed, self._draws = int(seed), 0

    @property
    def nbytes(self) -> int:
        """The bytes of all columns together."""
        return self._columns.nbytes

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each env has, the reset rows of next-step autoreset included."""
        return self._columns.lengths.copy()

    @property
    def valid(self) -> Any:
        """Which of the filled rows are steps, [longest column, envs]: no padding, no reset row."""
        return self._valid(self._columns.rows)

    @property
    def advantages(self) -> Any:
        """What `finish` estimated, [longest column, envs]."""
        return self["advantages"]

    @property
    def returns(self) -> Any:
        """What `finish` estimated, [longest column, envs]."""
        return self["returns"]

    def __len__(self) -> int:
        return int(self._columns.lengths.sum() if self._same_step else self.valid.sum())

    def __getitem__(self, name: str) -> Any:
        """A view of the filled part, [longest column, envs, ...]; a nested field is a dict."""
        if name == "valid":
            return self.valid
        if name in ESTIMATES and not self._finished:
            raise RuntimeError(
                f"RolloutBuffer: {name} are not known yet, or out of date. Call finish() after "
                f"the last add()."
            )
        if name in self._columns:
            return self._columns.filled(name)
        inner = {
            path.removeprefix(f"{name}/"): self._columns.filled(path)
            for path in self._fields
            if path.startswith(f"{name}/")
        }
        if not inner:
            raise KeyError(f"RolloutBuffer has no {name!r}; it has {', '.join(self._columns)}.")
        return unflatten(inner)

    def __repr__(self) -> str:
        columns = self._columns
        fields = ", ".join(
            f"{name} {columns[name].shape} {columns[name].dtype_name}" for name in self._fields
        )
        return (
            f"RolloutBuffer({columns.steps:,} steps × {columns.envs:,} envs, {self._store.place}, "
            f"{readable_bytes(self.nbytes)}: {fields or 'no fields'}; {len(self):,} rows)"
        )

    def add(self, *, env: int | None = None, envs=None, final_values=None, **step: Any) -> None:
        """Add one step of all envs ([envs, ...] each), of `env` ([...]), or of `envs` ([k, ...]).

        Fields take their own dtype, or one that casts to it without loss; a bare Python number
        fits any float or wide enough integer. Rewards, values and `final_values` take any real
        number and are rounded to `float_dtype`. Flags are booleans, or integers 0 and 1. Tensors
        are detached. `final_values` is the value of the true successor, read where truncated and
        not terminated; rows that get none are `pending`. On an error nothing is added.
        """
        columns = self._columns
        chosen, leading = columns.choose("add", env, envs)
        given = flatten(step)
        names = [*self._fields, *STEP]
        wrong = _misnamed(given, names)
        given = {name: given[name] for name in names if name in given}
        if final_values is not None and self._same_step:
            given["final_values"] = final_values
        elif final_values is not None:
            wrong.append("final_values has no place with next-step autoreset (leave it out)")
        arrays = columns.convert_all("add", given, leading, wrong=wrong, note="Nothing was added.")
        if self._same_step:
            arrays = {"final_values": 0, "bootstrapped": final_values is not None} | arrays
        lengths = columns.lengths[chosen]
        if np.any(lengths >= columns.steps):
            full = np.atleast_1d(np.arange(columns.envs)[chosen])[lengths >= columns.steps]
            raise RuntimeError(
                f"RolloutBuffer.add: the column of env {_listing(full)} is full with "
                f"{columns.steps:,} steps. Nothing was added; call finish(), train, then clear()."
            )
        cells = columns.cells(lengths, chosen)
        for name, array in arrays.items():
            columns[name].data[cells] = array
        columns.lengths[chosen] += 1
        self._touch()

    def pending(self) -> tuple[Any, Any]:
        """(step indices, env indices) of the truncated rows that wait for their successor's value.

        In order of step, then env. Terminated rows need none.
        """
        steps, envs = self._waiting()
        return self._store.array(steps), self._store.array(envs)

    def bootstrap(self, values) -> None:
        """Fill in the values [k] of the successors of the k `pending` rows, in that order."""
        steps, envs = self._waiting()
        note = f"{len(steps)} rows are pending; nothing was filled in."
        arrays = self._columns.convert_all(
            "bootstrap", {"values": values}, (len(steps),), note=note
        )
        if len(steps):
            cells = self._columns.cells(steps, envs)
            self._columns["final_values"].data[cells] = arrays["values"]
            self._columns["bootstrapped"].data[cells] = True
            self._touch()

    def end_with_penalty(self, env: int, penalty: float) -> int:
        """Make `env`'s last row a true terminal with reward `penalty`, its episode forfeited.

        The earlier rewards of that episode in this rollout become 0; how many is returned. With
        next-step autoreset the row that follows counts as the reset row, as after any end.
        """
        columns = self._columns
        chosen, _ = columns.choose("end_with_penalty", -1 if env is None else env)
        last = int(columns.lengths[chosen]) - 1
        valid = self._store.host(self.valid[:, chosen])
        if last < 0 or not valid[last]:
            raise RuntimeError(
                f"RolloutBuffer.end_with_penalty: env {env} has no step to end"
                f"{'' if last < 0 else ' after its last end, only a reset row'}. Add one first."
            )
        given = {"rewards": penalty}
        penalty = columns.convert_all("end_with_penalty", given, ())["rewards"]
        ends = np.flatnonzero(self._store.host(self._ended(last)[:, chosen]))
        start = int(ends[-1]) + 1 if ends.size else 0
        columns["rewards"].data[start:last, chosen] = 0
        columns["rewards"].data[last, chosen] = penalty
        columns["terminated"].data[last, chosen] = True
        columns["truncated"].data[last, chosen] = False
        self._touch()
        return int(valid[start:last].sum())

    def clear(self, env: int | None = None, *, after_reset: bool = False) -> None:
        """Forget the rows of all envs, or of one; nothing of them is handed out again.

        With next-step autoreset, `after_reset` says that the environments were reset by hand, so
        that the next row is a step even if the last one was an end.
        """
        columns = self._columns
        chosen, _ = columns.choose("clear", env)
        if not self._same_step:
            filled = np.zeros(columns.envs, bool)
            filled[chosen] = columns.lengths[chosen] > 0
            envs = np.flatnonzero(filled)
            ended = self._ended(columns.rows)[columns.cells(columns.lengths[envs] - 1, envs)]
            self._previous_end[self._store.array(envs)] = ended
            if after_reset:
                self._previous_end[chosen] = False
        columns.forget(chosen)
        self._touch()

    def finish(
        self,
        last_values=None,
        *,
        gamma,
        lambda_,
        normalize_advantages: bool = False,
        min_std: float = 1e-8,
    ) -> None:
        """Fill `advantages` and `returns` of all valid rows, by `loopless.gae`.

        The value of a row's successor is the next row's, or what `bootstrap` filled in where
        truncated, or `last_values[env]` at the last row of a column that has not ended;
        terminated rows have none. `last_values` [envs] is read for those columns only, and may
        be left out where there are none. Advantages are normalised over the valid rows.
        """
        from loopless.kernels.normalize import normalize
        from loopless.kernels.returns import gae

        columns = self._columns
        if not columns.rows:
            raise RuntimeError("RolloutBuffer.finish: nothing was added since the last clear().")
        unfinished = self._unfinished()
        if last_values is None and unfinished.size:
            raise ValueError(
                f"RolloutBuffer.finish: the column of env {_listing(unfinished)} has not ended, "
                f"and last_values is missing. Pass the values [envs] of the observations that "
                f"follow the last rows."
            )
        last = self._store.zeros((columns.envs,), columns["values"].data.dtype)
        if last_values is not None:
            try:
                last = columns.convert("values", last_values, (columns.envs,), as_="last_values")
            except (TypeError, ValueError) as error:
                raise type(error)(f"RolloutBuffer.finish: {error}.") from None
        valid = self.valid
        advantages, returns = gae(
            self["rewards"],
            self["values"],
            self._next_values(last, unfinished),
            self["terminated"],
            self["truncated"],
            gamma=gamma,
            lambda_=lambda_,
            valid=valid,
        )
        if normalize_advantages:
            advantages = normalize(advantages, valid, min_std=min_std)
        columns["advantages"].data[: columns.rows] = advantages
        columns["returns"].data[: columns.rows] = returns
        self._touch()
        self._finished = True

    def minibatches(
        self,
        batch_size: int | None = None,
        *,
        count: int | None = None,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Dicts of arrays [n, ...] with the fields of valid rows, each row once an epoch.

        In batches of `batch_size`, or in `count` batches as equal as can be, or all in one.
        `drop_last` makes all batches equal and leaves the remainder out. After `finish` they hold
        advantages and returns too.
        """
        rows = np.flatnonzero(self._store.host(self.valid))
        bounds = _bounds("minibatches", rows, batch_size, count, drop_last)
        data = {
            name: column.data.reshape(-1, *column.shape)
            for name, column in self._trained_on().items()
        }
        batches = self._batches(rows, bounds, epochs, shuffle)
        return self._columns.draw(data, 0, batches, self._columns.changes)

    def sequences(
        self,
        envs_per_batch: int | None = None,
        *,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Dicts of whole columns [steps, n, ...] with their `valid` mask, for recurrent policies.

        Each column with a valid row comes once an epoch, all in one batch unless `envs_per_batch`
        is given. A stored hidden state is the initial one at row 0.
        """
        valid = self._valid(self._columns.steps)
        envs = np.flatnonzero(self._store.host(valid).any(0))
        bounds = _bounds("sequences", envs, envs_per_batch, None, drop_last)
        data = {name: column.data for name, column in self._trained_on().items()}
        batches = self._batches(envs, bounds, epochs, shuffle)
        return self._columns.draw(data | {"valid": valid}, 1, batches, self._columns.changes)

    def state(self) -> dict[str, Any]:
        """Copies of all that `restore` needs to go on as if nothing had happened: arrays, ints."""
        saved = {
            f"data/{name}": self._store.copy(self._columns.filled(name))
            for name in self._columns
            if self._finished or name not in ESTIMATES
        }
        return saved | {
            "steps": self._columns.steps,
            "envs": self._columns.envs,
            "finished": int(self._finished),
            "lengths": self.lengths,
            "previous_end": self._store.host(self._store.copy(self._previous_end)),
            "seed": self._seed,
            "draws": self._draws,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of a buffer of the same shape; on an error nothing changes."""
        columns = self._columns
        finished = bool(state.get("finished"))
        names = [name for name in columns if finished or name not in ESTIMATES]
        own = {"steps": columns.steps, "envs": columns.envs}
        others = [*own, "finished", "lengths", "previous_end", "seed", "draws"]
        wrong = _misnamed(state, [*(f"data/{name}" for name in names), *others])
        wrong += [
            f"the state has {state[name]} {name}, the buffer {mine}"
            for name, mine in own.items()
            if state.get(name, mine) != mine
        ]
        small = {}
        for name, dtype in (("lengths", np.int64), ("previous_end", np.bool_)):
            small[name] = np.asarray(state.get(name, np.zeros(columns.envs, dtype))).copy()
            if small[name].shape != (columns.envs,) or small[name].dtype != dtype:
                wrong.append(f"{name} is not {columns.envs} of {np.dtype(dtype).name}")
        lengths = small["lengths"]
        if not wrong and not ((lengths >= 0) & (lengths <= columns.steps)).all():
            wrong.append(f"lengths are not from 0 to {columns.steps}")
        rows = 0 if wrong else int(lengths.max())
        given = {} if wrong else {name: state[f"data/{name}"] for name in names}
        arrays = columns.convert_all(
            "restore", given, (rows, columns.envs), "exact", wrong, "The buffer is unchanged."
        )
        for name, array in arrays.items():
            columns[name].data[:rows] = array
        columns.stale = np.maximum(np.maximum(columns.stale, columns.lengths), rows)
        columns.lengths = lengths
        self._previous_end = self._store.array(small["previous_end"])
        self._seed, self._draws = int(state["seed"]), int(state["draws"])
        self._touch()
        self._finished = finished

    def _touch(self) -> None:
        self._finished = False
        self._columns.changes += 1

    def _trained_on(self):
        names = [*self._fields, *STEP, *(ESTIMATES if self._finished else ())]
        return {name: self._columns[name] for name in names}

    def _batches(self, items, bounds, epochs: int, shuffle: bool) -> Iterator[np.ndarray]:
        for _epoch in range(epochs):
            order = items
            if shuffle:
                order = np.random.default_rng((self._seed, self._draws)).permutation(items)
                self._draws += 1
            for first, end in pairwise(bounds):
                yield order[first:end]

    def _ended(self, rows: int) -> Any:
        """The ends of the first `rows` rows, stale ones too."""
        return self._columns["terminated"].data[:rows] | self._columns["truncated"].data[:rows]

    def _valid(self, rows: int) -> Any:
        valid = self._store.array(np.arange(rows)[:, None] < self._columns.lengths)
        if not self._same_step:
            valid[:1] &= ~self._previous_end
            valid[1:] &= ~self._ended(rows)[:-1]
        return valid

    def _waiting(self) -> tuple[np.ndarray, ...]:
        """Steps and envs of the pending rows, on the host."""
        if not self._same_step:
            return np.nonzero(np.zeros((0, 0)))
        waiting = self["truncated"] & ~self["terminated"] & ~self["bootstrapped"]
        return np.nonzero(self._store.host(waiting))

    def _unfinished(self) -> np.ndarray:
        """The envs whose last row needs `last_values`; an error if any row cannot be estimated."""
        steps, envs = self._waiting()
        if len(steps):
            raise RuntimeError(
                f"RolloutBuffer.finish: {len(steps)} truncated rows wait for their successor's "
                f"value, at (step, env) {_listing(np.stack([steps, envs], 1))}. Call "
                f"bootstrap(values) in the order of pending(), or pass final_values to add()."
            )
        valid, terminated, truncated = (
            self._store.host(self[name]) for name in ("valid", "terminated", "truncated")
        )
        ended = terminated | truncated
        if (ended & ~valid).any():
            step, env = np.argwhere(ended & ~valid)[0].tolist()
            raise RuntimeError(
                f"RolloutBuffer.finish: row {step} of env {env} follows an end, so with next-step "
                f"autoreset it is a reset, yet it is flagged as an end itself. If the environments "
                f'reset in the step of the end, use autoreset="same_step".'
            )
        envs = np.flatnonzero(self._columns.lengths)
        last = self._columns.lengths[envs] - 1, envs
        return envs[~ended[last] if self._same_step else valid[last] & ~terminated[last]]

    def _next_values(self, last: Any, unfinished: np.ndarray) -> Any:
        from loopless.kernels.rollouts import successor_values

        next_values, _ = successor_values(
            self["values"],
            last,
            self["terminated"],
            self["truncated"],
            final_values=self["final_values"] if self._same_step else None,
            autoreset="same_step" if self._same_step else "next_step",
            previous_end=None if self._same_step else self._previous_end,
        )
        # below a short column's last row is padding, not last_values
        cells = self._columns.cells(self._columns.lengths[unfinished] - 1, unfinished)
        next_values[cells] = last[self._store.array(unfinished)]
        return next_values


def _specs(fields, float_dtype, store, same_step: bool) -> dict[str, tuple]:
    """(shape, dtype name, casting) of every column; one error for all that is wrong."""
    if not isinstance(fields, Mapping):
        raise TypeError(f"RolloutBuffer: fields maps names to (shape, dtype); received {fields!r}.")
    specs, wrong = {}, []
    for name, field in flatten(fields).items():
        try:
            shape, dtype = field
            shape = tuple(map(int, shape)) if isinstance(shape, tuple | list) else (int(shape),)
            dtype = dtype_name(dtype)
            store.dtype(dtype)
            specs[name] = (shape, dtype, "lossless")
        except (TypeError, ValueError) as error:
            wrong.append(f"{name} is {field!r}, not (shape, dtype) ({error})")
            continue
        if name.split("/")[0] in RESERVED:
            wrong.append(f"{name} is a name of the buffer's own (choose another)")
        if any(size < 0 for size in shape):
            wrong.append(f"{name} has shape {shape}, with a negative size")
    try:
        number = dtype_name(float_dtype)
        store.dtype(number)
    except TypeError as error:
        number = str(error)
    if number not in ("bfloat16", "float16", "float32", "float64"):
        wrong.append(f"float_dtype is {float_dtype!r}, no floating dtype of {store.name}")
    if wrong:
        raise ValueError(f"RolloutBuffer: {'; '.join(wrong)}.")
    flags, floats = ("terminated", "truncated"), ("rewards", "values", *ESTIMATES)
    if same_step:
        flags, floats = (*flags, "bootstrapped"), (*floats, "final_values")
    own = dict.fromkeys(floats, ((), number, "number"))
    return specs | own | dict.fromkeys(flags, ((), "bool", "flag"))


def _misnamed(given: Mapping[str, Any], names: list[str]) -> list[str]:
    """What is missing among `given`, and what is unknown, in words."""
    missing = [f"{name} is missing" for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    close = {name: get_close_matches(name, names, 1) for name in unknown}
    return missing + [
        f"{name} is unknown" + (f" (did you mean {close[name][0]}?)" if close[name] else "")
        for name in unknown
    ]


def _listing(found: np.ndarray) -> str:
    """The first few of many."""
    return ", ".join(map(str, found[:5].tolist())) + (", …" if len(found) > 5 else "")


def _bounds(function: str, items, size, count, drop_last: bool) -> list[int]:
    """Where batches of `items` start and end."""
    total, owner = len(items), f"RolloutBuffer.{function}"
    if size is not None and count is not None:
        raise ValueError(f"{owner}: pass batch_size or count, not both.")
    given = count if size is None else size
    if given is not None and (not isinstance(given, int | np.integer) or given < 1):
        raise ValueError(f"{owner}: sizes and counts of batches are from 1 up; received {given!r}.")
    if total == 0:
        raise RuntimeError(f"{owner}: there are no valid rows. Add some first.")
    if size is None:
        count = int(count or 1)
        if count > total:
            raise ValueError(f"{owner}: {total} items do not make {count} batches.")
        whole = total - total % count if drop_last else total
        return (np.arange(count + 1) * whole // count).tolist()
    if drop_last and size > total:
        raise ValueError(
            f"{owner}: with drop_last, {total} items make no batch of {size}. Use smaller batches."
        )
    rest = [] if drop_last or total % size == 0 else [total]
    return [*range(0, total + 1, int(size)), *rest]
