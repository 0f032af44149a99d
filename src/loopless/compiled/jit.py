"""The one way in which this library compiles with Numba: kernels, overloads, functions XLA calls.

Compiled kernels are kept on disk. Numba alone drops a stored kernel only when the kernel's own file
changes, although a kernel also holds the code of every helper that it calls, in whichever file that
stands. Here the key of a stored kernel covers all of it: the code of the function, of every
function of ours that it refers to, and so on, and the values of the constants among them. What is
hashed is the code in memory, which is what gets compiled, so an edit while a process runs cannot
store an old kernel under a new key.

Helpers may be marked with Numba's `register_jitable` and `intrinsic`; an overload must be
registered with `overload` from here, or the key would not know its implementation.
"""

import hashlib
import sys
import warnings
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher
from numba.core.sigutils import normalize_signature
from numba.extending import overload as numba_overload

_OVERLOADS: dict[Any, list[FunctionType]] = {}  # function → its implementations


def jit(*, contract: bool = True, reassociate: bool = False, inline: bool = False):
    """Return Numba's `njit` with the options that all kernels share, and our disk cache.

    Nothing may change how NaN and infinity behave. A product and a sum may `contract` to one
    instruction with one rounding; sums may be reordered if `reassociate`. With `inline` the
    function is inlined into its caller before types are inferred.
    """
    allowed = {name for name, on in (("contract", contract), ("reassoc", reassociate)) if on}
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": allowed or False,
        "boundscheck": False,
        "inline": "always" if inline else "never",
    }
    return lambda function: _with_cache(numba.njit(**options)(function), function)


def c_function(signature):
    """Return a decorator that compiles a function to a C function of this signature at once."""

    def decorate(function) -> Any:
        options = {"error_model": "numpy", "boundscheck": False}
        compiled = CFunc(function, normalize_signature(signature), {}, options)
        _with_cache(compiled, function).compile()
        return compiled

    return decorate


def overload(function):
    """Return Numba's `overload` of this function, recorded for the keys of the disk cache."""

    def decorate(implementation):
        _OVERLOADS.setdefault(function, []).append(implementation)
        return numba_overload(function)(implementation)

    return decorate


def _with_cache(compiled, function) -> Any:
    try:
        compiled._cache = _Cache(function)
    except RuntimeError:  # neither the package's folder nor a home can be written to
        warnings.warn(
            "loopless: no folder for compiled kernels can be written to, so every process "
            "compiles its own. Set NUMBA_CACHE_DIR to one that can.",
            RuntimeWarning,
            stacklevel=3,
        )
    return compiled


class _Cache(FunctionCache):
    """Numba's disk cache, whose key is the code of all that a kernel compiles in."""

    def _index_key(self, sig, codegen) -> Any:
        return sig, codegen.magic_tuple(), digest(self._py_func)


def digest(function: FunctionType) -> str:
    """Return a hash of this function's code and of everything of ours that it refers to."""
    return hashlib.sha256("\n".join(_Walk(function).lines).encode()).hexdigest()


class _Walk:
    """Describes, line by line, all that goes into one kernel."""

    def __init__(self, function: FunctionType):
        self.lines: list[str] = []
        self._visited: set[int] = set()
        self._visit(function)

    def _visit(self, value: Any) -> None:
        if isinstance(value, Dispatcher):
            self._visit(value.targetoptions)
        value = _python(value)
        if isinstance(value, np.ndarray):
            self.lines.append(f"{value.dtype} {value.shape} {value.tobytes().hex()}")
        elif isinstance(value, set | frozenset):  # has no order of its own
            self.lines.append(repr(sorted(map(repr, value))))
        elif isinstance(value, _PLAIN):
            self.lines.append(f"{type(value).__name__} {value!r}")
        elif id(value) in self._visited:
            return
        elif isinstance(value, dict):
            self._visit(tuple(value.items()))
        elif isinstance(value, tuple | list):
            self.lines.append(f"{type(value).__name__} {len(value)}")
            for item in value:
                self._visit(item)
        elif isinstance(value, FunctionType):
            self._visited.add(id(value))
            self._visit_function(value)
        elif isinstance(value, type):
            self._visited.add(id(value))
            self.lines.append(f"{value.__qualname__} {getattr(value, '_fields', ())}")
            for item in vars(value).values():
                if isinstance(item, FunctionType) and _is_ours(item):
                    self._visit(item)
        elif callable(value):  # of another library, or built in
            self.lines.append(f"{type(value).__name__} {getattr(value, '__name__', '')}")
        else:
            raise TypeError(
                f"loopless: a kernel refers to {value!r}, and the disk cache cannot tell when that "
                "changes; use a number, a string, a tuple, an array or a function instead."
            )

    def _visit_function(self, function: FunctionType) -> None:
        self.lines.append(function.__qualname__)
        names = list(dict.fromkeys(self._visit_code(function.__code__)))
        self._visit_names(function.__globals__, names, set())
        for cell in function.__closure__ or ():
            self._visit(cell.cell_contents)
        self._visit([function.__defaults__, function.__kwdefaults__])
        self._visit(_OVERLOADS.get(function, []))

    def _visit_names(self, namespace: dict[str, Any], names: list[str], modules: set[str]) -> None:
        """Visit what these names stand for, here and in the modules among them."""
        for name in names:
            value = namespace.get(name)
            if name not in namespace or not _is_ours(value):
                continue
            if not isinstance(value, ModuleType):
                self._visit(value)
            elif value.__name__ not in modules:
                self._visit_names(vars(value), names, modules | {value.__name__})

    def _visit_code(self, code: CodeType) -> list[str]:
        """Describe the code without its line numbers; return the names that it looks up."""
        self.lines.append(f"{code.co_code.hex()} {code.co_names} {code.co_varnames}")
        names = list(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names += self._visit_code(constant)
            else:
                self._visit(constant)
        return names


_FOREIGN = {*sys.stdlib_module_names, "numpy", "numba", "llvmlite", "jax", "torch"}
_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
    *(np.generic, np.dtype, numba.types.Type, ir.Type),
)


def _python(value: Any) -> Any:
    """Return the Python function inside a kernel, an intrinsic or a cached function."""
    return value if isinstance(value, FunctionType) else getattr(value, "__wrapped__", value)


def _is_ours(value: Any) -> bool:
    """Return whether a value belongs to no library on which this one builds."""
    value = _python(value)
    if not isinstance(value, ModuleType | FunctionType | type):
        return True
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return name.split(".")[0] not in _FOREIGN
