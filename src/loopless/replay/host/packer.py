"""Writes one transition at a time into packed rows, by one call of `struct`.

`add` is called once for every step of an environment, mostly with plain numbers and small arrays of
the declared dtypes. For these a transition is checked by its types alone and packed to bytes in one
call. `pack` returns None for everything else, also for what is wrong, and `ring` then takes the way
that casts, and that says what cannot be cast.
"""

import struct
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Self

import numpy as np

from loopless.replay.host.packed import PackedRows

# For a single number: its code in `struct`, and the types that are stored in it without loss.
CODES: dict[str, tuple[str, frozenset[type]]] = {
    "float64": ("d", frozenset({float, bool, np.bool_, np.float64, np.float32})),
    "float32": ("f", frozenset({float, bool, np.bool_, np.float32})),
    "int64": ("q", frozenset({int, bool, np.int64, np.int32})),
    "int32": ("i", frozenset({int, bool, np.int32})),
    "uint8": ("B", frozenset({int, bool, np.uint8})),
    "bool": ("?", frozenset({bool, np.bool_})),
}
MOST_KINDS = 64  # combinations of types that are remembered


class Packer:
    """The rows of a ring, one transition at a time; all fields must be in the packed rows."""

    def __init__(self, rows: PackedRows) -> None:
        fields = sorted(rows.fields.items(), key=lambda item: rows.offsets[item[0]])
        names = [name for name, _ in fields]
        codes = [
            CODES[field.dtype][0] if _is_number(field) else f"{rows.widths[name]}s"
            for name, field in fields
        ]
        packed = struct.Struct("=" + "".join(codes))
        packed = struct.Struct(f"{packed.format}{rows.stride - packed.size}x")
        self._pack, self._stride = packed.pack, rows.stride
        self._memory = memoryview(rows.packed)
        self._take, self._count = itemgetter(*names, names[0]), len(names)  # of one: no tuple
        self._arrays = [
            (names.index(name), np.dtype(field.dtype), field.shape)
            for name, field in fields
            if not _is_number(field)
        ]
        whole = frozenset({np.ndarray})
        self._types = [CODES[f.dtype][1] if _is_number(f) else whole for _, f in fields]
        self._kinds: set[tuple[type, ...]] = set()

    @classmethod
    def of(cls, rows: PackedRows) -> Self | None:
        """Return a packer for `rows`, or None where it could not write all of a transition."""
        whole = len(rows.offsets) == len(rows.fields) and rows.stride > 0
        return cls(rows) if whole and not rows.storage.in_files else None

    def pack(self, values: Mapping[str, Any]) -> bytes | None:
        """Return the row of a transition, or None if its values need a cast or are wrong."""
        if len(values) != self._count:
            return None
        try:
            *columns, _ = self._take(values)
            kinds = tuple(map(type, columns))
            if kinds not in self._kinds and not self._knows(kinds):
                return None
            for place, dtype, shape in self._arrays:
                array = columns[place]
                if array.dtype is not dtype or array.shape != shape:
                    return None
                columns[place] = array.tobytes()
            return self._pack(*columns)
        except (KeyError, struct.error, OverflowError):  # a missing name, a number out of range
            return None

    def write(self, slot: int, row: bytes) -> None:
        """Write a row at `slot`."""
        start = slot * self._stride
        self._memory[start : start + self._stride] = row

    def _knows(self, kinds: tuple[type, ...]) -> bool:
        """Return whether values of these types can be packed as they are, and remember it."""
        known = all(map(frozenset.__contains__, self._types, kinds))
        if known and len(self._kinds) < MOST_KINDS:
            self._kinds.add(kinds)
        return known


def _is_number(field: Any) -> bool:
    return field.shape == () and field.dtype in CODES
