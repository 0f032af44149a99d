"""Fuzzed calls of every function: refused in our words, or equal to the loop; inputs stay as is.

Arguments are sound (`kernels`), in a random library, dtype and layout; then some are spoilt. A call
must either raise ValueError or TypeError with a message that names the function, or return what
the loop twin returns for the same arguments, whatever they are.
"""

import copy
import warnings
from typing import Any

import numpy as np

import loopless as ll
from torture.failure import Failure
from torture.kernels import KERNELS, Kernel, dense_actions

LIBRARIES = ("numpy",) * 25 + ("torch",) * 24 + ("jax",)  # XLA compiles for long
DTYPES = ("int64", "float64", "bool", "complex64")


def fuzz(seed: int) -> dict[str, int]:
    """Make one call; return what to count; raise Failure if it did what it must not do."""
    rng = np.random.default_rng(seed)
    kernel = KERNELS[rng.integers(len(KERNELS))]
    library = LIBRARIES[rng.integers(len(LIBRARIES))]
    dtype = np.float32 if library == "jax" else (np.float32, np.float64)[rng.integers(2)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain = _typed(kernel.make(rng), dtype)
        arguments = {name: _convert(rng, value, library) for name, value in plain.items()}
        spoilt = _spoil(rng, arguments) if rng.random() < 0.6 else []
        before = {name: copy.deepcopy(_plain(value)) for name, value in arguments.items()}
        function = getattr(ll, kernel.name)
        said = f"{kernel.name} on {library}, spoilt: {spoilt or 'nothing'}"
        try:
            answer = function(**arguments)
        except (ValueError, TypeError) as error:
            if kernel.name not in str(error):
                raise Failure(f"{said}: {type(error).__name__} in other words: {error}") from error
            if not spoilt:
                raise Failure(f"{said}: refused: {error}") from error
            return {"calls": 1, "refused": 1}
        except Exception as error:
            raise Failure(f"{said}: {type(error).__name__}: {str(error)[:300]}") from error
        _check_unwritten(said, before, arguments)
        _compare(said, kernel, {name: _number(value) for name, value in arguments.items()}, answer)
    return {"calls": 1, "compared": 1}


# --- arguments


def _typed(case: dict, dtype) -> dict:
    is_float = lambda x: isinstance(x, np.ndarray) and x.dtype.kind == "f"  # noqa: E731
    return {name: x.astype(dtype) if is_float(x) else x for name, x in case.items()}


def _convert(rng, value: Any, library: str) -> Any:
    """Return an array in this library, sometimes strided, read-only or in Fortran order."""
    if not isinstance(value, np.ndarray):
        return value
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(value)
    layout = rng.integers(5)
    if layout == 0 and value.ndim:
        wide = np.repeat(value, 2, -1)
        value = wide[..., ::2]
    elif layout == 1:
        value = np.asfortranarray(value)
    elif layout == 2 and library == "numpy":
        value = value.copy()
        value.flags.writeable = False
    if library == "numpy":
        return value
    import torch

    tensor = torch.from_numpy(np.array(value, order="K"))
    return tensor.requires_grad_() if value.dtype.kind == "f" and rng.random() < 0.3 else tensor


def _spoil(rng, arguments: dict) -> list[str]:
    """Replace some arguments by hostile values; return which, in words."""
    words = []
    for name in rng.permutation(list(arguments))[: 1 + rng.integers(2)]:
        label, value = _hostile(rng, arguments[name])
        arguments[name] = value
        words.append(f"{name} = {label}")
    return words


def _hostile(rng, value: Any) -> tuple[str, Any]:
    numbers = {
        "None": None, "text": "skip", "an object": object(), "NaN": float("nan"),
        "inf": float("inf"), "-1": -1, "10**400": 10**400, "2**63": 2**63, "True": True,
        "np.float32": np.float32(0.5), "np.float16": np.float16(0.5), "np.int64": np.int64(2),
        "np.float64": np.float64(0.25), "np.bool_": np.bool_(True), "complex": 1j, "a dict": {},
        "-0.0": -0.0, "0": 0, "0-d array": np.array(0.5), "bytes": b"x",
    }  # fmt: skip
    if not hasattr(value, "shape"):
        label = list(numbers)[rng.integers(len(numbers))]
        return label, numbers[label]
    plain = _plain(value)
    arrays = {
        "a list": plain.tolist,
        "one axis more": lambda: value[None],
        "one axis less": lambda: value[0] if len(value) else value.sum(),
        "transposed": lambda: value.T,
        "another dtype": lambda: _cast(value, DTYPES[rng.integers(len(DTYPES))]),
        "a masked array": lambda: np.ma.masked_array(plain),
        "an array of objects": lambda: plain.astype(object),
        "another library": lambda: _elsewhere(value, plain),
        "NaN within": lambda: _with_nan(value),
        "a sparse tensor": lambda: _tensor(plain).to_sparse(),
        "a meta tensor": lambda: _tensor(plain).to("meta"),
    }  # fmt: skip
    choices = [*arrays, *list(numbers)[:4]]
    label = choices[rng.integers(len(choices))]
    return label, arrays[label]() if label in arrays else numbers[label]


def _cast(value: Any, name: str) -> Any:
    if hasattr(value, "astype"):
        return value.astype(name)
    import torch

    return value.detach().to(getattr(torch, name))


def _tensor(plain: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(plain.copy())


def _elsewhere(value: Any, plain: np.ndarray) -> Any:
    return _tensor(plain) if isinstance(value, np.ndarray) else plain.copy()


def _with_nan(value: Any) -> Any:
    plain = _plain(value).astype(np.float32).copy()
    plain.reshape(-1)[:1] = np.nan
    if isinstance(value, np.ndarray):
        return plain
    if type(value).__module__.startswith("torch"):
        return _tensor(plain)
    import jax.numpy as jnp

    return jnp.asarray(plain)


def _plain(value: Any) -> Any:
    """Return an array of any library as NumPy's, and other values as they are."""
    if isinstance(value, np.ndarray) or not hasattr(value, "shape"):
        return value
    if hasattr(value, "detach"):
        return value if value.is_sparse or value.is_meta else value.detach().numpy()
    return np.asarray(value)


def _number(value: Any) -> Any:
    """Return what the loop is given: it would compute in half precision with an np.float16."""
    return value.item() if isinstance(value, np.generic) else _plain(value)


# --- answers


def _check_unwritten(said: str, before: dict, arguments: dict) -> None:
    for name, old in before.items():
        new = _plain(arguments[name])
        if isinstance(old, np.ndarray) and not np.array_equal(
            old, new, equal_nan=old.dtype.kind in "fc"
        ):
            raise Failure(f"{said}: wrote to {name}")


def _compare(said: str, kernel: Kernel, arguments: dict, answer: Any) -> None:
    try:
        expected = _flatten(kernel.twin(**arguments))
    except Exception as error:
        raise Failure(f"{said}: answered, but the loop raised {error!r}") from error
    if kernel.name == "avatarl_actions":
        answer = dense_actions(answer, **arguments)
    received = _flatten(answer)
    if kernel.name == "avatarl_rewards" and arguments.get("mask") is not None:
        shown = np.asarray(arguments["mask"], bool)[..., None]
        received = [np.where(shown, x, 0) for x in received]
    if len(received) != len(expected):
        raise Failure(f"{said}: {len(received)} outputs, the loop has {len(expected)}")
    for place, (ours, loop) in enumerate(zip(received, expected, strict=True)):
        if ours.shape != loop.shape:
            raise Failure(f"{said}: output {place} has shape {ours.shape}, the loop's {loop.shape}")
        ours, loop = ours.astype(np.float64), loop.astype(np.float64)
        finite = np.isfinite(loop)
        scale = 1 + np.abs(loop[finite]).max(initial=0)
        same = np.isclose(ours, loop, rtol=2e-4, atol=2e-5 * scale, equal_nan=True)
        if not same.all():
            raise Failure(
                f"{said}: output {place} is {ours[~same][:3]}, the loop's {loop[~same][:3]}"
            )


def _flatten(answer: Any) -> list[np.ndarray]:
    if hasattr(answer, "_asdict"):
        answer = answer._asdict()
    if isinstance(answer, dict):  # JAX sorts the keys of what it returns
        answer = tuple(answer[name] for name in sorted(answer))
    if isinstance(answer, tuple):
        return [x for part in answer for x in _flatten(part)]
    return [np.asarray(_plain(answer))]
