"""How transitions are laid out in a device's memory, checked, written and read.

The small fields of a transition stand side by side as 32-bit words of one packed row, so that
writing is one scatter and drawing one gather; a field of 256 bytes or more, or an array of numbers
narrower than a word, is stored apart. Shapes and dtypes are checked while tracing, and so cost
nothing when the program runs. Nothing is broadcast, rounded or narrowed behind the caller's back.
Host twins: `replay.casts`, `host.packed`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless import process
from loopless.refusals import check_names, refuse
from loopless.replay.device.words import wrap
from loopless.replay.fields import Field, flatten, parse_fields, unflatten
from loopless.replay.storage.memory import check_bytes_fit

LARGE = 256  # bytes from which a field has an array of its own
WORD = 4
WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
Fields = tuple[tuple[str, Field], ...]


class JaxLibrary:
    """Which dtypes JAX has, and how many bytes of its device are free; see `replay.casts`."""

    def dtype(self, name: str) -> Any:
        dtype = jnp.dtype(name)
        if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_):
            raise TypeError(f"{name} is not a dtype of numbers")
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise TypeError(f"JAX would narrow {name}; declare 32 bits, or set jax_enable_x64")
        return dtype

    def free_bytes(self) -> int | None:
        device = jax.devices()[0]
        if device.platform == "cpu":
            return process.free_memory_bytes()
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)


JAX = JaxLibrary()


def declare(where: str, fields: Any, reserved: Collection[str]) -> tuple[Fields, list[str]]:
    """Return `fields` as a hashable tuple, as a handle stores them, and what is wrong with them."""
    named = dict(fields) if isinstance(fields, tuple) else fields
    if isinstance(named, Mapping) and named and all(isinstance(f, Field) for f in named.values()):
        return tuple(named.items()), []  # from another handle, by flat names
    parsed, problems = parse_fields(where, fields, JAX, reserved)
    if not parsed and not problems:
        problems.append("fields is empty")
    return tuple(parsed.items()), problems


def fields_like(where: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an example transition: the shapes and dtypes that JAX sees in it."""
    flat = flatten(where, example)
    shapes = {name: jax.eval_shape(jnp.asarray, value) for name, value in flat.items()}
    return unflatten({name: (x.shape, x.dtype) for name, x in shapes.items()})


@dataclass(frozen=True)
class Layout:
    """Where each field is: in `columns` of a packed row, or in an array of its own."""

    fields: dict[str, Field]
    columns: dict[str, tuple[int, int]]
    words: int  # in a packed row

    @property
    def arrays(self) -> dict[str, Field]:
        """Return what is allocated for each row."""
        packed = {"packed rows": Field((self.words,), "uint32")} if self.words else {}
        return packed | {n: field for n, field in self.fields.items() if n not in self.columns}

    def zeros(self, capacity: int) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return packed rows [capacity, words], and the other arrays [capacity, ...] by name."""
        return jnp.zeros((capacity, self.words), jnp.uint32), {
            name: jnp.zeros((capacity, *field.shape), field.dtype)
            for name, field in self.fields.items()
            if name not in self.columns
        }

    def filled(self, values: Mapping[str, Any]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Return the arrays of `zeros` filled with copies of `values` [capacity, ...]."""
        capacity = len(next(iter(values.values())))
        names = list(self.columns)
        small = [_as_words(jnp.array(values[name])) for name in names]
        packed = jnp.concatenate([jnp.zeros((capacity, 0), jnp.uint32), *small], 1)
        return packed, {n: jnp.array(v) for n, v in values.items() if n not in self.columns}

    def write(self, packed, large, slots, values, options: dict[str, Any]) -> tuple[Any, Any]:
        """Return the arrays with `values` [n, ...] in `slots`; `options` go to the scatter."""
        names = list(self.columns)
        small = [_as_words(values[name]) for name in names]
        if small:
            packed = packed.at[slots].set(jnp.concatenate(small, 1), **options)
        return packed, {name: a.at[slots].set(values[name], **options) for name, a in large.items()}

    def read(self, packed, large, slots, names: Collection[str]) -> dict[str, jax.Array]:
        """Return the fields `names` of the rows in `slots`, each [*slots.shape, ...]."""
        rows = take(packed, slots)
        values = {}
        for name in names:
            if name in large:
                values[name] = take(large[name], slots)
            else:
                begin, end = self.columns[name]
                values[name] = _as_field(rows[..., begin:end], self.fields[name])
        return values

    def read_column(self, packed, slots, name: str) -> jax.Array:
        """Return one scalar field of the rows in `slots`; no other word of them is read."""
        begin, end = self.columns[name]
        words = packed.at[slots[..., None], jnp.arange(begin, end, dtype=jnp.uint32)]
        return _as_field(words.get(mode="promise_in_bounds"), self.fields[name])


@lru_cache
def layout_of(fields: Fields) -> Layout:
    """Return the layout of `fields`, computed once and cached."""
    columns, end = {}, 0
    for name, field in fields:
        dtype = jnp.dtype(field.dtype)
        numbers = math.prod(field.shape)
        words = numbers * max(1, dtype.itemsize // WORD)
        narrow = dtype.itemsize < WORD and field.shape != ()
        if 0 < words * WORD < LARGE and not narrow and dtype.kind != "c":
            columns[name] = (end, end + words)
            end += words
    return Layout(dict(fields), columns, end)


def check_fits(where: str, rows: int, arrays: Mapping[str, Field], extent: str) -> int:
    """Return the bytes of `rows` rows of all `arrays`; raise if the device has fewer free."""
    advice = "Use a smaller capacity, or smaller dtypes."
    return check_bytes_fit(where, extent, rows, arrays, JAX, advice)


def take(array: jax.Array, slots: jax.Array) -> jax.Array:
    """Return rows of an array; `slots` are known to be in bounds."""
    return array.at[slots].get(mode="promise_in_bounds")


def steps_from(first: jax.Array, count: int, capacity: int) -> jax.Array:
    """Return `count` ≤ capacity slots from `first` on, across the ring's seam."""
    return wrap(first + lax.iota(jnp.uint32, count), capacity)


def _as_words(value: jax.Array) -> jax.Array:
    """Return numbers [n, ...] as words [n, words]."""
    size = value.dtype.itemsize
    if value.dtype == jnp.bool_:
        words = value.astype(jnp.uint32)
    else:
        words = lax.bitcast_convert_type(value, WORDS[min(size, WORD)]).astype(jnp.uint32)
    return words.reshape(value.shape[0], -1)


def _as_field(words: jax.Array, field: Field) -> jax.Array:
    """Return words [..., words] as the numbers that they hold, [..., *shape]."""
    dtype = jnp.dtype(field.dtype)
    leading = words.shape[:-1]
    if dtype == jnp.bool_:
        return (words != 0).reshape(*leading, *field.shape)
    if dtype.itemsize > WORD:
        words = words.reshape(*leading, -1, dtype.itemsize // WORD)
    narrow = words.astype(WORDS[min(dtype.itemsize, WORD)])
    return lax.bitcast_convert_type(narrow, dtype).reshape(*leading, *field.shape)


def read_values(
    where: str, values: Any, fields: Mapping[str, Field], axes: int
) -> tuple[dict[str, jax.Array], tuple[int, ...]]:
    """Return arrays [*leading, *shape] of the declared dtypes, and their leading shape.

    The leading shape is that of the first field, and has at most `axes` axes.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{where}: pass a dict of arrays; received {type(values).__name__}.")
    flat = flatten(where, values)
    problems: list[str | Exception] = list(check_names(flat, fields))
    known = {name: _as_array(flat[name]) for name in fields if name in flat}
    leading: tuple[int, ...] = ()
    if known:
        name, first = next(iter(known.items()))
        leading = first.shape[: max(0, first.ndim - len(fields[name].shape))]
    if len(leading) > axes:
        problems.append(f"the arrays have leading shape {leading}, of more than {axes} axes")
    for name, value in known.items():
        problems += _check_value(name, value, fields[name], leading, flat[name])
    refuse(where, problems)
    return {name: jnp.asarray(v, fields[name].dtype) for name, v in known.items()}, leading


def _as_array(value: Any) -> Any:
    """Return `value` as an array of its own dtype; `jnp.asarray` would narrow 64 bits."""
    return value if isinstance(value, jax.Array | np.ndarray) else np.asarray(value)


def _check_value(
    name: str, value: Any, field: Field, leading: tuple[int, ...], original: Any
) -> list[str | Exception]:
    """Return why `value`, made of `original`, cannot be written into a field."""
    problems: list[str | Exception] = []
    wanted, source, dtype = (*leading, *field.shape), value.dtype, jnp.dtype(field.dtype)
    if value.shape != wanted:
        problems.append(ValueError(f"{name} has shape {value.shape}, expected {wanted}"))
    if type(original) in (bool, int, float) or getattr(value, "weak_type", False):
        loses = _kind(source) > _kind(dtype)  # a bare number has a kind, but no dtype
    else:
        rounds = source.kind in "iu" and source.itemsize == 8 and dtype.kind in "fc"
        loses = rounds or not np.can_cast(source, dtype)
    if loses:
        problems.append(TypeError(f"{name} has dtype {source}, expected {dtype} (convert it)"))
    return problems


def _kind(dtype: Any) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floats, 3 for complex numbers."""
    whole, real = jnp.issubdtype(dtype, jnp.integer), jnp.issubdtype(dtype, jnp.floating)
    return 1 * whole + 2 * real + 3 * jnp.issubdtype(dtype, jnp.complexfloating)
