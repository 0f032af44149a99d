"""What may be written into a field, and the arrays that are: shape and dtype checked, then cast.

Nothing is rounded, wrapped or broadcast behind the caller's back, and all that is wrong with a
call is said at once. Imports `fields` and `refusals`; tensors are looked at only if PyTorch is
loaded. Tests: `tests/replay/test_rollout_writes.py`, `tests/replay/test_rollout_refusals.py`.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from loopless.refusals import refuse
from loopless.replay.fields import Field, dtype_name


def convert_all(
    where: str,
    given: Mapping[str, Any],
    fields: Mapping[str, Field],
    leading: tuple[int, ...],
    store,
    *,
    problems: Sequence[str] = (),
    note: str = "",
) -> dict[str, Any]:
    """`given` as arrays [*leading, *shape] of `store`; one error with all that is wrong.

    `problems` are what the caller has found already.
    """
    arrays: dict[str, Any] = {}
    found: list[str | Exception] = [*problems]
    for name, value in given.items():
        try:
            arrays[name] = convert(name, value, fields[name], leading, store)
        except (TypeError, ValueError) as error:
            found.append(error)
    refuse(where, found, note=note)
    return arrays


def convert(name: str, value, field: Field, leading: tuple[int, ...], store) -> Any:
    """`value` as an array that can be written; an error is a sentence that starts with `name`."""
    wanted = (*leading, *field.shape)
    if store.holds(value, field.dtype) and value.shape == wanted:  # the usual case, made cheap
        return value
    torch = sys.modules.get("torch")
    tensor = torch is not None and isinstance(value, torch.Tensor)
    try:
        array = value.detach() if tensor else np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is no array: its rows differ in length") from None
    if array.shape != wanted:
        raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {wanted}")
    source = dtype_name(array.dtype)
    if source != field.dtype:
        _check_cast(name, array, source, field, bare=type(value) in (int, float))
    try:
        return store.adopt(array, field.dtype)
    except FloatingPointError:
        raise ValueError(
            f"{name} holds numbers too large for {field.dtype} (scale them, or choose a wider "
            f"dtype)"
        ) from None


def _check_cast(name: str, array, source: str, field: Field, bare: bool) -> None:
    """Refuse what `field` does not take; a `bare` Python number has no dtype of its own."""
    kind, wanted = _kind(source), field.dtype
    if field.casting == "flag":
        if kind not in "iu":
            raise TypeError(
                f"{name} has dtype {source}; flags are booleans, or integers 0 and 1 (pass "
                f"{name} != 0 if that is what you mean)"
            )
        on_host = isinstance(array, np.ndarray) or array.device.type == "cpu"
        if on_host and not bool(((array == 0) | (array == 1)).all()):
            raise ValueError(f"{name} holds integers other than 0 and 1")
        return
    if field.casting == "number":
        if kind in "iuf":
            return
        wanted = "a number"
    elif field.casting == "lossless":
        if _lossless(source, field.dtype) or (bare and _kind(field.dtype) in "fc"):
            return
        if bare and kind in "iu" and _kind(field.dtype) in "iu":
            limits = np.iinfo(field.dtype)
            if limits.min <= int(array) <= limits.max:
                return
            raise ValueError(f"{name} is {int(array)}, which {field.dtype} cannot hold")
    raise TypeError(f"{name} has dtype {source}, expected {wanted} (convert it, or declare it)")


def _kind(dtype_name: str) -> str:
    if dtype_name.startswith(("bfloat", "float")):  # NumPy does not know all of PyTorch's
        return "f"
    try:
        return np.dtype(dtype_name).kind
    except TypeError:  # "str96" and its like
        return "V"


@lru_cache
def _lossless(source: str, target: str) -> bool:
    if target == "bfloat16":
        return source in ("bool", "int8", "uint8")
    if source == "bfloat16":
        return target in ("float32", "float64")
    try:
        old, new = np.dtype(source), np.dtype(target)
    except TypeError:
        return False
    # NumPy calls int64 → float64 safe, but it rounds beyond 2^53
    rounds = old.kind in "iu" and old.itemsize == 8 and new.kind in "fc"
    return np.can_cast(old, new) and not rounds
