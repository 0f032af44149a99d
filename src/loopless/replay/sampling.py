"""What all samplers share: the random generator, n-step windows, and how results are laid out.

A host buffer draws into one block of bytes, of which each result is a contiguous view. A `Plan`
says where each result stands; it is made once for each shape of draws and looked up from then on.
The kernels that fill the block are in `loopless.compiled`.
"""

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import index
from types import SimpleNamespace
from typing import Any

import numpy as np

from loopless.refusals import check_choice, check_count, check_names, refuse
from loopless.replay.fields import Field, flatten, top_name, unflatten
from loopless.replay.storage.memory import CACHE_LINE

RESERVED = {"indices", "weights", "discount"}  # what ring buffers add to the fields of a draw
LAST = {"next_obs", "terminated", "truncated"}  # read at the last transition of an n-step window
MOST_PLANS = 64  # are kept, as a caller may use ever new shapes


@cache
def kernels() -> Any:
    """Return the compiled kernels of all buffers.

    They are imported on first use: importing Numba takes longer than many programs run.
    """
    from loopless.compiled import episodic, ring, segments, successors, tree

    return SimpleNamespace(
        episodic=episodic, ring=ring, segments=segments, successors=successors, tree=tree
    )


def new_generator(seed) -> np.ndarray:
    """Return the state of a generator of `compiled.random`: its key, and a counter of draws."""
    key = np.random.SeedSequence(index(seed)).generate_state(1, np.uint64)[0]
    return np.array([key, 0], np.uint64)


def check_counts(where: str, batch_size, batches, **at_least_0) -> tuple[int, ...]:
    """Return the shape of a draw, (batch_size,) or (batches, batch_size); raise if it is wrong.

    Other counts of the call, by name, must be at least 0.
    """
    problems = check_count("batch_size", batch_size, 1)
    problems += [] if batches is None else check_count("batches", batches, 1)
    for name, count in at_least_0.items():
        problems += check_count(name, count, 0)
    refuse(where, problems or check_draws(batch_size, batches))
    return (index(batch_size),) if batches is None else (index(batches), index(batch_size))


def check_draws(batch_size, batches) -> list[str]:
    """Return a problem if a call would draw more than an axis may have, 2³¹ − 1."""
    if index(batch_size) * (1 if batches is None else index(batches)) < 2**31:
        return []
    return ["one call draws fewer than 2³¹ in all its batches; draw in several calls"]


def check_windows(fields: Mapping[str, Field], n_step: int, gamma) -> list[str]:
    """Return why windows of `n_step` transitions cannot be made of `fields`, if they cannot."""
    if n_step == 1:
        return []
    problems = []
    real = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (real and 0 <= float(gamma) <= 1):
        problems.append(f"n_step={n_step} needs gamma from 0 to 1; received {gamma!r}")
    for name, dtypes in (
        ("reward", ("float32", "float64")),
        ("terminated", ("bool",)),
        ("truncated", ("bool",)),
    ):
        field = fields.get(name)
        if field is None or field.shape or field.dtype not in dtypes:
            problems.append(f"n_step={n_step} needs the field {name}, () {' or '.join(dtypes)}")
    if not any(top_name(name) == "next_obs" for name in fields):
        problems.append(f"n_step={n_step} needs the field next_obs")
    return problems


@dataclass(frozen=True)
class Plan:
    """Where the results of draws of one shape stand in one block of bytes."""

    leading: tuple[int, ...]
    count: int  # how many are drawn
    nbytes: int
    places: dict[str, tuple[tuple[int, ...], np.dtype, int]]  # shape, dtype, place in the block
    table: np.ndarray  # the small fields, as `compiled.ring.gather_all` reads them
    large: dict[str, tuple[str, int]]  # the stored field, and which array of indices it follows
    nested: bool

    def allocate(self, where: str, out, library: str) -> tuple[np.ndarray, dict[str, Any]]:
        """Return a new block and its views by name, large fields in `out` if there is one."""
        if library != "numpy":
            problems = check_choice("library", library, ("numpy", "torch", "jax"))
            if not problems and out is not None:
                problems.append(f"out takes NumPy arrays; leave it out with library={library!r}")
            refuse(where, problems)
        block = np.empty(self.nbytes, np.uint8)
        arrays: dict[str, Any] = {
            name: np.ndarray(shape, dtype, block, place)
            for name, (shape, dtype, place) in self.places.items()
        }
        if out is not None:
            flat = self._flatten(where, out)
            refuse(where, self._check_out(flat))
            arrays |= {name: flat[name] for name, _ in self.large.items()}
        return block, arrays

    def gather_large(self, rows, block: np.ndarray, arrays: Mapping[str, Any]) -> None:
        """Copy the large fields of `rows` (a `PackedRows`) into `arrays`."""
        for name, (field, number) in self.large.items():
            indices = block[8 * self.count * number : 8 * self.count * (number + 1)]
            flat = arrays[name].reshape(-1).view(np.uint8)
            source, stride, offset = rows.source(field)
            width = rows.widths[field]
            kernels().ring.gather(flat, 0, source, stride, offset, width, indices.view(np.int64))

    def deliver(self, where: str, arrays: dict[str, Any], out, library: str) -> Any:
        """Return `arrays` nested like the fields, in `library`, or written into `out`."""
        if out is None:
            if library != "numpy":
                arrays = _as_library(library, arrays)
            return as_batch(unflatten(arrays) if self.nested else arrays, nested=self.nested)
        for name, array in self._flatten(where, out).items():
            if name not in self.large:
                array[...] = arrays[name]
        return out

    def _flatten(self, where: str, out) -> Mapping[str, Any]:
        if not isinstance(out, Mapping):
            raise TypeError(
                f"{where}: out must be a dict of arrays like the result; received {out!r}."
            )
        return flatten(where, out) if self.nested else out

    def _check_out(self, out: Mapping[str, Any]) -> list[str]:
        problems = check_names(out, self.places)
        for name, (shape, dtype, _place) in self.places.items():
            array = out.get(name)
            if array is None:
                continue
            if array.__class__ is not np.ndarray:
                problems.append(f"out[{name!r}] is not a NumPy array")
            elif array.shape != shape or array.dtype != dtype:
                problems.append(
                    f"out[{name!r}] is {array.shape} {array.dtype}, expected {shape} {dtype}"
                )
            elif not array.flags.carray:
                problems.append(f"out[{name!r}] is not contiguous, aligned and writeable")
        return problems


def plan_draws(
    rows,
    leading: tuple[int, ...],
    *,
    indices: Mapping[str, int],
    index_arrays: int,
    extra: Mapping[str, np.dtype],
    read: Mapping[str, tuple[str, int]],
    computed: Collection[str] = (),
) -> Plan:
    """Return the plan of draws of shape `leading` from `rows`, a `PackedRows`.

    The block begins with `index_arrays` arrays of int64, of which `indices` names those that are
    results. Then come `extra` results that the buffer computes, and the fields to `read`: for each
    result, the stored field, and the number of the index array that says where to read it. A field
    that is `computed` gets a place, and is filled by the buffer.
    """
    count, table, large = math.prod(leading), [], {}
    places: dict[str, tuple] = {
        name: (leading, np.dtype(np.int64), 8 * count * number) for name, number in indices.items()
    }
    end = 8 * count * index_arrays
    for name, dtype in extra.items():
        end += -end % CACHE_LINE
        places[name] = (leading, dtype, end)
        end += count * dtype.itemsize
    for name, (stored, number) in read.items():
        field, width = rows.fields[stored], rows.widths[stored]
        end += -end % CACHE_LINE
        places[name] = ((*leading, *field.shape), np.dtype(field.dtype), end)
        if stored in rows.large:
            large[name] = (stored, number)
        elif stored in rows.offsets and name not in computed:
            table.append((rows.offsets[stored], width, end, number))
        end += count * width
    nested = any("/" in name for name, _ in places.items())
    lines = np.array(table, np.int64).reshape(-1, 4)
    return Plan(leading, count, end, places, lines, large, nested)


def _as_library(library: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return `arrays` in PyTorch, sharing memory, or in JAX, narrowed to 32 bits by its default.

    Nobody writes to these arrays again, so tensors may share their memory. JAX keeps 64-bit
    numbers, indices among them, only with jax_enable_x64.
    """
    if library == "torch":
        import torch

        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    import jax.numpy as jnp

    return {name: jnp.asarray(array) for name, array in arrays.items()}


class Batch(dict[str, Any]):
    """A dict of arrays whose fields are attributes, too: batch["obs"] is batch.obs.

    A field wins over a method of dict of the same name; dict.items(batch) is always the method.
    JAX and PyTorch know it as a tree, so that jit, vmap and tree_map take it as they take a dict,
    if they were imported before the batch was made.
    """

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in self:
            return self[name]
        return super().__getattribute__(name)

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *dict.keys(self)})

    def __reduce__(self) -> Any:
        return Batch, (dict(self),)


def as_batch(tree: dict[str, Any], *, nested: bool) -> Batch:
    """Return a dict of arrays, and the dicts in it if it is `nested`, as batches."""
    if len(_registered) < 2:
        _register()
    if nested:
        tree = {k: as_batch(x, nested=True) if x.__class__ is dict else x for k, x in tree.items()}
    return Batch(tree)


_registered: set[str] = set()


def _register() -> None:
    """Make batches trees of the libraries that are there."""
    if "jax" not in _registered and "jax" in sys.modules and "jax.tree_util" in sys.modules:
        tree_util = sys.modules["jax.tree_util"]

        def pair(name: str, x: Any) -> tuple:
            return tree_util.DictKey(name), x

        _registered.add("jax")
        tree_util.register_pytree_with_keys(
            Batch,
            lambda batch: (list(map(pair, (names := _keys(batch)), _parts(batch, names))), names),
            lambda names, parts: Batch(zip(names, parts, strict=True)),
            lambda batch: (_parts(batch, names := _keys(batch)), names),
        )
    if "torch" not in _registered and "torch" in sys.modules:
        from torch.utils import _pytree

        def with_keys(batch: Any) -> Any:
            names = list(batch)
            return [(_pytree.MappingKey(name), batch[name]) for name in names], names

        _registered.add("torch")
        _pytree.register_pytree_node(
            Batch,
            lambda batch: (list(dict.values(batch)), list(batch)),
            lambda parts, keys: Batch(zip(keys, parts, strict=True)),
            serialized_type_name="loopless.replay.Batch",
            flatten_with_keys_fn=with_keys,
        )


def _keys(batch: Batch) -> tuple[str, ...]:
    return tuple(sorted(batch))


def _parts(batch: Batch, names: tuple[str, ...]) -> list:
    return [batch[name] for name in names]
