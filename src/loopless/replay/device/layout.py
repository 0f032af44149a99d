"""How transitions lie in a device's memory: which arrays, what may be written, how rows are read.

The small fields of a transition stand side by side as 32-bit words of one packed row, so that
writing is one scatter and drawing one gather; a field of 256 bytes and more, or of many numbers
narrower than a word, has an array of its own. Shapes and dtypes are checked while tracing, and so
cost nothing. Imports JAX, `fields`, `memory` and `refusals`. Tests:
`tests/replay/test_device_ring.py`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.process import free_memory_bytes
from loopless.replay.device.words import around
from loopless.replay.fields import Field, flatten, parse_fields, unflatten
from loopless.replay.storage.size import bytes_that_fit

LARGE = 256  # bytes from which a field has an array of its own
WORD = 4
WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}
Fields = tuple[tuple[str, Field], ...]


class DeviceStore:
    """What JAX holds, and how much of it fits; for `parse_fields` and `bytes_that_fit`."""

    def dtype(self, name: str) -> Any:
        dtype = jnp.dtype(name)
        if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_):
            raise TypeError(f"{name} is no number")
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise TypeError(f"JAX would narrow {name}; declare 32 bits, or set jax_enable_x64")
        return dtype

    def free_bytes(self) -> int | None:
        device = jax.devices()[0]
        if device.platform == "cpu":
            return free_memory_bytes()
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)


def declare(where: str, fields: Any, reserved: Collection[str]) -> tuple[Fields, list[str]]:
    """`fields` as a handle keeps them, hashable, and what is wrong with them."""
    own = dict(fields) if isinstance(fields, tuple) else fields
    if isinstance(own, Mapping) and own and all(isinstance(f, Field) for f in own.values()):
        return tuple(own.items()), []  # another handle's, by their flat names
    parsed, problems = parse_fields(where, fields, DeviceStore(), reserved)
    if not parsed and not problems:
        problems.append("fields is empty")
    return tuple(parsed.items()), problems


def fields_like(where: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an example transition: the shapes and dtypes that JAX sees in it."""
    flat = flatten(where, example)
    shapes = {name: jax.eval_shape(jnp.asarray, value) for name, value in flat.items()}
    return unflatten({name: (x.shape, x.dtype) for name, x in shapes.items()})


@dataclass(frozen=True)
class Layout:
    """Where each field is: `columns` of a packed row, or an array of its own."""

    fields: dict[str, Field]
    columns: dict[str, tuple[int, int]]
    words: int  # in a packed row

    @property
    def arrays(self) -> dict[str, Field]:
        """What is allocated for each row."""
        packed = {"packed rows": Field((self.words,), "uint32")} if self.words else {}
        return packed | {n: field for n, field in self.fields.items() if n not in self.columns}

    def zeros(self, capacity: int) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Packed rows [capacity, words], and the other arrays [capacity, ...] by name."""
        return jnp.zeros((capacity, self.words), jnp.uint32), {
            name: jnp.zeros((capacity, *field.shape), field.dtype)
            for name, field in self.fields.items()
            if name not in self.columns
        }

    def filled(self, values: Mapping[str, Any]) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The same arrays with these `values` [capacity, ...], which are copied."""
        capacity = len(next(iter(values.values())))
        names = list(self.columns)
        small = [_as_words(jnp.array(values[name])) for name in names]
        packed = jnp.concatenate([jnp.zeros((capacity, 0), jnp.uint32), *small], 1)
        return packed, {n: jnp.array(v) for n, v in values.items() if n not in self.columns}

    def write(self, packed, large, slots, values, options: dict[str, Any]) -> tuple[Any, Any]:
        """Put the rows of `values` [n, ...] into `slots`; `options` are those of a scatter."""
        names = list(self.columns)
        small = [_as_words(values[name]) for name in names]
        if small:
            packed = packed.at[slots].set(jnp.concatenate(small, 1), **options)
        return packed, {name: a.at[slots].set(values[name], **options) for name, a in large.items()}

    def read(self, packed, large, slots, names: Collection[str]) -> dict[str, jax.Array]:
        """The fields `names` of the rows in `slots`, each [*slots.shape, ...]."""
        rows = take(packed, slots)
        found = {}
        for name in names:
            if name in large:
                found[name] = take(large[name], slots)
            else:
                begin, end = self.columns[name]
                found[name] = _as_field(rows[..., begin:end], self.fields[name])
        return found

    def read_column(self, packed, slots, name: str) -> jax.Array:
        """A field without axes, alone: no other word of its rows is touched."""
        begin, end = self.columns[name]
        words = packed.at[slots[..., None], jnp.arange(begin, end, dtype=jnp.uint32)]
        return _as_field(words.get(mode="promise_in_bounds"), self.fields[name])


@lru_cache
def layout_of(fields: Fields) -> Layout:
    """The layout of a declaration; worked out once."""
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
    """The bytes of `rows` rows of all `arrays`; an error if the device has not as many free."""
    advice = "Use a smaller capacity, or smaller dtypes."
    return bytes_that_fit(where, extent, rows, arrays, DeviceStore(), advice)


def count_bytes(rows: int, arrays: Mapping[str, Field]) -> int:
    """The bytes of `rows` rows of all `arrays`."""
    store = DeviceStore()
    each = (math.prod(f.shape) * store.dtype(f.dtype).itemsize for f in arrays.values())
    return rows * sum(each)


def take(array: jax.Array, slots: jax.Array) -> jax.Array:
    """Rows of an array; `slots` are known to be rows of it."""
    return array.at[slots].get(mode="promise_in_bounds")


def steps_from(first: jax.Array, count: int, capacity: int) -> jax.Array:
    """`count` ≤ capacity slots from `first` on, around the ring's seam."""
    return around(first + lax.iota(jnp.uint32, count), capacity)


def _as_words(value: jax.Array) -> jax.Array:
    """Numbers [n, ...] as words [n, words]."""
    size = value.dtype.itemsize
    if value.dtype == jnp.bool_:
        words = value.astype(jnp.uint32)
    else:
        words = lax.bitcast_convert_type(value, WORDS[min(size, WORD)]).astype(jnp.uint32)
    return words.reshape(value.shape[0], -1)


def _as_field(words: jax.Array, field: Field) -> jax.Array:
    """Words [..., words] as the numbers that they hold, [..., *shape]."""
    dtype = jnp.dtype(field.dtype)
    leading = words.shape[:-1]
    if dtype == jnp.bool_:
        return (words != 0).reshape(*leading, *field.shape)
    if dtype.itemsize > WORD:
        words = words.reshape(*leading, -1, dtype.itemsize // WORD)
    narrow = words.astype(WORDS[min(dtype.itemsize, WORD)])
    return lax.bitcast_convert_type(narrow, dtype).reshape(*leading, *field.shape)
