"""Convert JAX pytrees to named NumPy arrays and back, exactly, random keys included.

    arrays = flatten({"weights": params, "optimizer": opt_state, "key": key})
    state = unflatten(state, checkpoint.arrays)   # `state` gives the structure, types and places

JAX is imported when these are called.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from loopless.files.manifest import differences
from loopless.files.tensors import entry_of

Tree = TypeVar("Tree")


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves by the names of their paths, such as `weights/layers/0/bias`.

    On the CPU the arrays may share the memory of the leaves: save or copy them before a donated
    call reuses it. Raises ValueError, which names every leaf that could not be restored exactly.
    """
    arrays, problems = {}, []
    for name, leaf in _named(tree).items():
        try:
            arrays[name] = _to_numpy(leaf)
        except TypeError as error:
            problems.append(f"{name} {error}")
    if problems:
        raise ValueError(f"checkpoint: {'; '.join(problems)}.")
    return arrays


def unflatten(template: Tree, arrays: Mapping[str, np.ndarray]) -> Tree:
    """Return a tree like `template` with the values of `arrays`, on the same devices."""
    import jax

    expected = {name: entry_of(array) for name, array in flatten(template).items()}
    if problems := differences({name: entry_of(a) for name, a in arrays.items()}, expected):
        raise ValueError(f"checkpoint: the arrays do not fit: {'; '.join(problems)}.")
    leaves = [_like(leaf, arrays[name]) for name, leaf in _named(template).items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _named(tree: Any) -> dict[str, Any]:
    import jax

    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = {_name(path, leaf): leaf for path, leaf in pairs}
    if len(named) < len(pairs):
        names = [_name(path, leaf) for path, leaf in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"checkpoint: two leaves have the name {', '.join(twice)}; rename one.")
    return named


def _name(path: Any, leaf: Any) -> str:
    import jax

    name = jax.tree_util.keystr(path, simple=True, separator="/")
    # Keys of two generators may have the same shape; they must not be taken for one another.
    return f"{name}:{jax.random.key_impl(leaf)}" if _is_key(leaf) else name


def _is_key(leaf: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    import jax

    if _is_key(leaf):
        return np.asarray(jax.random.key_data(leaf))
    if isinstance(leaf, jax.Array) and leaf.weak_type:
        raise TypeError("is weakly typed and would come back strong: give it a dtype")
    if isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
        return np.asarray(leaf)
    raise TypeError(f"is a {type(leaf).__name__}: keep arrays and numbers only in the state")


def _like(leaf: Any, array: np.ndarray) -> Any:
    import jax
    import jax.numpy as jnp

    if _is_key(leaf):
        data = jnp.array(array)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array):
        # A copy: memory that NumPy still holds cannot be donated.
        value = jnp.array(array)
        return value if leaf.sharding == value.sharding else jax.device_put(value, leaf.sharding)
    if isinstance(leaf, np.ndarray | np.generic):
        return array.copy() if isinstance(leaf, np.ndarray) else array[()]
    return type(leaf)(array.item())
