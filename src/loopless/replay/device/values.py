"""What may be written into a device buffer: names, shapes and dtypes, checked while tracing.

Checks cost nothing when the compiled program runs, because shapes and dtypes are known before.
Nothing is broadcast, rounded or narrowed behind the caller's back, and all that is wrong with a
call is said at once. Imports JAX, `fields` and `refusals`. Tests:
`tests/replay/test_device_ring.py`.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.refusals import check_names, refuse
from loopless.replay.fields import Field, flatten


def read_values(
    where: str, given: Any, fields: Mapping[str, Field], axes: int
) -> tuple[dict[str, jax.Array], tuple[int, ...]]:
    """Arrays [*leading, *shape] of the declared dtypes, and their leading shape.

    Of up to `axes` leading axes, as the first field has them.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: rows are a dict of arrays; received {type(given).__name__}.")
    flat = flatten(where, given)
    problems: list[str | Exception] = list(check_names(flat, fields))
    known = {name: _as_array(flat[name]) for name in fields if name in flat}
    leading: tuple[int, ...] = ()
    if known:
        name, first = next(iter(known.items()))
        leading = first.shape[: max(0, first.ndim - len(fields[name].shape))]
    if len(leading) > axes:
        problems.append(f"rows have leading shape {leading}, of more than {axes} axes")
    for name, value in known.items():
        problems += _unfit(name, value, fields[name], leading, flat[name])
    refuse(where, problems)
    return {name: jnp.asarray(v, fields[name].dtype) for name, v in known.items()}, leading


def _as_array(value: Any) -> Any:
    """`value` with its own dtype, where JAX would narrow 64 bits."""
    return value if isinstance(value, jax.Array | np.ndarray) else np.asarray(value)


def _unfit(
    name: str, value: Any, field: Field, leading: tuple[int, ...], given: Any
) -> list[str | Exception]:
    """Why `value`, made of what was `given`, cannot be written into a field."""
    problems: list[str | Exception] = []
    wanted, source, dtype = (*leading, *field.shape), value.dtype, jnp.dtype(field.dtype)
    if value.shape != wanted:
        problems.append(ValueError(f"{name} has shape {value.shape}, expected {wanted}"))
    if type(given) in (bool, int, float) or getattr(value, "weak_type", False):
        loses = _kind(source) > _kind(dtype)  # it has a kind, but no dtype of its own
    else:
        rounds = source.kind in "iu" and source.itemsize == 8 and dtype.kind in "fc"
        loses = rounds or not np.can_cast(source, dtype)
    if loses:
        problems.append(TypeError(f"{name} has dtype {source}, expected {dtype} (convert it)"))
    return problems


def _kind(dtype: Any) -> int:
    """Booleans before integers before floats before complex numbers."""
    whole, real = jnp.issubdtype(dtype, jnp.integer), jnp.issubdtype(dtype, jnp.floating)
    return 1 * whole + 2 * real + 3 * jnp.issubdtype(dtype, jnp.complexfloating)
