"""The rollout buffer: what on-policy methods collect, estimate on, and train from once.

This is what a caller sees. Its loop twin is `tests/support/rollouts.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from loopless.kernels.normalize import normalize
from loopless.kernels.rollouts import AUTORESETS
from loopless.refusals import check_choice, check_count, check_names, refuse
from loopless.replay.casts import LIBRARIES, convert_all
from loopless.replay.fields import Field, flatten, parse_field, parse_fields
from loopless.replay.host.rollout.columns import Columns, Shuffler, batch_bounds
from loopless.replay.host.rollout.estimates import Ends, estimate
from loopless.replay.locks import give_lock, locked
from loopless.replay.storage.file import read_fields, read_numbers
from loopless.replay.storage.memory import readable_bytes

STEP = ("rewards", "values", "terminated", "truncated")  # what every step brings beside the fields
ESTIMATES = ("advantages", "returns")
SAME_STEP = ("final_values", "bootstrapped")  # a successor's value, and whether it is known
RESERVED = {*STEP, *ESTIMATES, *SAME_STEP, "valid", "env", "envs"}
FLOATS = ("bfloat16", "float16", "float32", "float64")


class RolloutBuffer:
    """`steps` × `envs` transitions in arrays [steps, envs, ...], allocated once.

    `fields` declares the caller's own data: {"obs": ((4,), np.float32), "actions": ((), "int64")};
    dicts may nest, and dtypes are NumPy's, PyTorch's or strings. Beside them the buffer stores
    rewards, values (`float_dtype`), terminated and truncated (bool), and what `finish` computes:

        buffer.add(obs=..., actions=..., rewards=..., values=..., terminated=..., truncated=...)
        steps, envs = buffer.pending()          # truncated rows: their successor is in no row
        buffer.bootstrap(value_net(final_obs))  # in that order; or final_values=... in add
        buffer.finish(last_values, gamma=0.99, lambda_=0.95)
        for batch in buffer.minibatches(256, epochs=4): ...
        buffer.clear()

    Each env has its own cursor, so columns may differ in length. What is returned holds 0, and
    false in `valid`, where nothing was added since `clear`; `initial`, {"masks": True}, has other
    values for some of the fields, each a number or of the field's shape. `buffer["obs"]` is a view:
    copy what must outlive the next `add` or `clear`. Adding never waits for the device.

    autoreset="next_step" is for vector environments that spend a step on the reset, as those of
    Gymnasium 1.x do by default: the row after an end is stored but not valid, and the value of a
    truncated row's successor is the next row's, so that nothing is ever pending. An end in the
    last row is remembered across `clear`.

    Batches are drawn by the buffer's own generator: one seed gives one order in both libraries.
    """

    _lock: Any

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
        initial: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        problems = check_count("steps", steps, 1) + check_count("envs", envs, 1)
        problems += check_count("seed", seed, 0)
        problems += check_choice("library", library, tuple(LIBRARIES))
        problems += check_choice("autoreset", autoreset, AUTORESETS)
        refuse("RolloutBuffer", problems)
        self._library = LIBRARIES[library](device)
        same_step = autoreset == "same_step"
        declared, added = _read_fields(fields, float_dtype, self._library, same_step)
        self._columns = Columns(
            "RolloutBuffer",
            int(steps),
            int(envs),
            declared | added,
            self._library,
            _read_initial(initial, declared, self._library),
        )
        self._declared, self._added = tuple(declared), (*declared, *STEP)
        self._ends = Ends(self._columns, same_step)
        self._shuffler = Shuffler(int(seed))
        self._finished = False
        give_lock(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, copied: dict[str, Any]) -> None:
        vars(self).update(copied)
        give_lock(self)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all columns together."""
        return self._columns.nbytes

    @property
    def lengths(self) -> np.ndarray:
        """Return how many rows each env has, the reset rows of next-step autoreset included."""
        return self._columns.lengths.copy()

    @property
    def valid(self) -> Any:
        """Return which rows are steps, [longest column, envs]: no padding, no reset row."""
        return self._ends.valid(self._columns.longest)

    @property
    def advantages(self) -> Any:
        """Return what `finish` estimated, [longest column, envs]."""
        return self["advantages"]

    @property
    def returns(self) -> Any:
        """Return what `finish` estimated, [longest column, envs]."""
        return self["returns"]

    def __len__(self) -> int:
        return int(self._columns.lengths.sum() if self._ends.same_step else self.valid.sum())

    def __getitem__(self, name: str) -> Any:
        """Return a view of the filled part, [longest column, envs, ...], or a dict of views."""
        if name in ESTIMATES and not self._finished:
            raise RuntimeError(
                f"RolloutBuffer: {name} are not known yet, or out of date. Call finish() after "
                f"the last add()."
            )
        return self.valid if name == "valid" else self._columns.view(name)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {self._columns.fields[name]}" for name in self._declared)
        return (
            f"RolloutBuffer({self._columns.extent}, {self._library.place}, "
            f"{readable_bytes(self.nbytes)}: {fields or 'no fields'}; {len(self):,} rows)"
        )

    def add(self, *, env: int | None = None, envs=None, final_values=None, **step: Any) -> None:
        """Add one step of all envs ([envs, ...] each), of `env` ([...]), or of `envs` ([k, ...]).

        Fields take their own dtype, or one that casts to it without loss; a bare Python number
        fits any float or wide enough integer. Rewards, values and `final_values` take any real
        number and are rounded to `float_dtype`. Flags are booleans, or numbers 0 and 1. Tensors
        are detached. `final_values` is the value of the true successor, read where truncated and
        not terminated; rows that get none are `pending`. On an error nothing is added.
        """
        where = "RolloutBuffer.add"
        chosen, leading = self._columns.choose(where, env, envs)
        step = flatten(where, step)
        problems = check_names(step, self._added)
        values = {name: step[name] for name in self._added if name in step}
        if final_values is not None and self._ends.same_step:
            values["final_values"] = final_values
        elif final_values is not None:
            problems.append("final_values is not used with next-step autoreset (leave it out)")
        arrays = self._columns.convert(where, values, leading, problems, "Nothing was added.")
        if self._ends.same_step:
            arrays = {"final_values": 0, "bootstrapped": final_values is not None} | arrays
        with self._lock:
            self._columns.append(where, chosen, arrays)
            self._changed()

    @locked
    def pending(self) -> tuple[Any, Any]:
        """Return (step indices, env indices) of truncated rows that wait for a successor's value.

        In order of step, then env. Terminated rows need none.
        """
        steps, envs = self._ends.pending()
        return self._library.array(steps), self._library.array(envs)

    @locked
    def bootstrap(self, values) -> None:
        """Fill in the values [k] of the successors of the k `pending` rows, in that order."""
        steps, envs = self._ends.pending()
        note = f"{len(steps)} rows are pending; nothing was filled in."
        where, shape = "RolloutBuffer.bootstrap", (len(steps),)
        arrays = self._columns.convert(where, {"values": values}, shape, note=note)
        if len(steps):
            cells = self._columns.cells(steps, envs)
            self._columns.data["final_values"][cells] = arrays["values"]
            self._columns.data["bootstrapped"][cells] = True
            self._changed()

    @locked
    def end_with_penalty(self, env: int, penalty: float) -> int:
        """Make `env`'s last row a true terminal with reward `penalty`, and forfeit its episode.

        The earlier rewards of that episode in this rollout become 0; their number is returned. With
        next-step autoreset the row that follows counts as the reset row, as after any end.
        """
        where, data = "RolloutBuffer.end_with_penalty", self._columns.data
        chosen, _ = self._columns.choose(where, -1 if env is None else env)
        first, last, earlier = self._ends.last_episode(where, chosen)
        reward = self._columns.convert(where, {"rewards": penalty}, ())["rewards"]
        data["rewards"][first:last, chosen] = 0
        data["rewards"][last, chosen] = reward
        data["terminated"][last, chosen] = True
        data["truncated"][last, chosen] = False
        self._changed()
        return earlier

    @locked
    def clear(self, env: int | None = None, *, after_reset: bool = False) -> None:
        """Forget the rows of all envs, or of one; nothing of them is returned again.

        With next-step autoreset, `after_reset` says that the environments were reset by hand, so
        that the next row is a step even if the last one was an end.
        """
        chosen, _ = self._columns.choose("RolloutBuffer.clear", env)
        self._ends.remember(chosen, after_reset)
        self._columns.forget(chosen)
        self._changed()

    @locked
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
        be left out where there are none. Advantages are normalized over the valid rows.
        """
        advantages, returns = estimate(
            "RolloutBuffer.finish", self._ends, last_values, gamma=gamma, lambda_=lambda_
        )
        if normalize_advantages:
            advantages = normalize(advantages, self.valid, min_std=min_std)
        self._columns.data["advantages"][: self._columns.longest] = advantages
        self._columns.data["returns"][: self._columns.longest] = returns
        self._changed(finished=True)

    def minibatches(
        self,
        batch_size: int | None = None,
        *,
        count: int | None = None,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield dicts of arrays [n, ...] with the fields of valid rows, each row once an epoch.

        They are batches of `batch_size`, or `count` batches as equal as can be, or a single one.
        `drop_last` makes all batches equal and leaves the remainder out. After `finish` they
        also hold advantages and returns.
        """
        rows = np.flatnonzero(self._library.host(self.valid))
        bounds = batch_bounds("RolloutBuffer.minibatches", len(rows), batch_size, count, drop_last)
        batches = self._shuffler.batches(rows, bounds, epochs, shuffle)
        flat = {name: data.reshape(-1, *data.shape[2:]) for name, data in self._training().items()}
        return self._columns.gather(flat, 0, batches, self._columns.changes)

    def sequences(
        self,
        envs_per_batch: int | None = None,
        *,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield dicts of whole columns [steps, n, ...] and their `valid` mask, for recurrent nets.

        Each column with a valid row comes once an epoch, all in one batch unless `envs_per_batch`
        is passed. If hidden states are stored, row 0 holds the initial one.
        """
        valid = self._ends.valid(self._columns.steps)
        envs = np.flatnonzero(self._library.host(valid).any(0))
        bounds = batch_bounds("RolloutBuffer.sequences", len(envs), envs_per_batch, None, drop_last)
        batches = self._shuffler.batches(envs, bounds, epochs, shuffle)
        data = self._training() | {"valid": valid}
        return self._columns.gather(data, 1, batches, self._columns.changes)

    @locked
    def state(self) -> dict[str, Any]:
        """Return copies of all that `restore` needs to go on from here: arrays and ints."""
        names = self._saved(self._finished)
        rows = {f"data/{name}": self._library.copy(self._columns.view(name)) for name in names}
        return rows | self._numbers()

    @locked
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of the same steps, envs and fields; on an error nothing changes."""
        where, columns = "RolloutBuffer.restore", self._columns
        fields = self._saved(bool(state.get("finished")))
        same, most = ("steps", "envs"), {"lengths": columns.steps}
        numbers = read_numbers(where, state, self._numbers(), fields, same=same, most=most)
        leading = int(numbers["lengths"].max()), columns.envs
        arrays = read_fields(where, state, fields, leading, self._library)
        columns.replace(numbers["lengths"], arrays)
        self._ends.previous = self._library.array(numbers["previous_end"])
        self._shuffler.seed, self._shuffler.draws = numbers["seed"], numbers["draws"]
        self._changed(finished=bool(numbers["finished"]))

    def _numbers(self) -> dict[str, Any]:
        """Return all that is saved beside the rows."""
        return {
            "steps": self._columns.steps,
            "envs": self._columns.envs,
            "finished": int(self._finished),
            "lengths": self.lengths,
            "previous_end": self._library.host(self._library.copy(self._ends.previous)),
            "seed": self._shuffler.seed,
            "draws": self._shuffler.draws,
        }

    def _changed(self, finished: bool = False) -> None:
        self._finished = finished
        self._columns.changes += 1

    def _training(self) -> dict[str, Any]:
        names = [*self._added, *(ESTIMATES if self._finished else ())]
        return {name: self._columns.data[name] for name in names}

    def _saved(self, finished: bool) -> dict[str, Field]:
        fields = self._columns.fields
        return {name: fields[name] for name in fields if finished or name not in ESTIMATES}


def _read_initial(initial, declared: Mapping[str, Field], library) -> dict[str, Any]:
    """Return what columns hold where nothing was added, by field; raise if something is wrong."""
    where, values = "RolloutBuffer", flatten("RolloutBuffer", initial or {})
    names = [*values]
    unknown = [f"initial has {name}, which is no field" for name in names if name not in declared]
    refuse(where, unknown)
    whole = {
        name: np.broadcast_to(x, declared[name].shape) if np.ndim(x) == 0 else x
        for name, x in values.items()
    }
    fields = {
        name: field if field.dtype == "bool" else replace(field, casting="number")
        for name, field in declared.items()
    }
    return convert_all(where, whole, fields, (), library, note="They are initial values.")


def _read_fields(
    fields, float_dtype, library, same_step: bool
) -> tuple[dict[str, Field], dict[str, Field]]:
    """Return the caller's fields and those the buffer adds; raise if something is wrong."""
    declared, problems = parse_fields("RolloutBuffer", fields, library, RESERVED)
    try:
        number = parse_field(((), float_dtype), library).dtype
    except TypeError:
        number = ""
    if number not in FLOATS:
        problems.append(f"float_dtype={float_dtype!r} is not a floating dtype of {library.name}")
    refuse("RolloutBuffer", problems)
    added = dict.fromkeys((*STEP, *ESTIMATES, *SAME_STEP), Field((), number, "number"))
    added |= dict.fromkeys(("terminated", "truncated", "bootstrapped"), Field((), "bool", "flag"))
    unused = () if same_step else SAME_STEP
    return declared, {name: field for name, field in added.items() if name not in unused}
