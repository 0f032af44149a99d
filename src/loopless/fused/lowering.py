"""Lowers a flat graph of core ATen operators to a function of JAX arrays, node by node.

The operators stand in the tables of `operators/`. Whoever calls the function traces it under
`jax.enable_x64()`, since JAX turns int64 into int32 elsewhere.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from loopless.fused.operators import OPERATORS, RANDOM
from loopless.fused.tracing import where
from loopless.refusals import refuse


@dataclass(frozen=True)
class Missing:
    """An operator that the table lacks, and the line of the user's code that asks for it."""

    operator: str
    where: str

    def __str__(self) -> str:
        return f"{self.operator} ({self.where})" if self.where else self.operator


def lower(
    graph: GraphModule, *, random: bool = False, only: Collection[Node] | None = None
) -> Callable[..., list]:
    """Return the function of JAX arrays that computes what `graph` computes.

    It takes one array for each placeholder and returns a flat list, with None where the graph
    returns None. With `random`, it takes a PRNG key by the keyword `key` too, and each random
    operator draws from its own part of it. By the keyword `known` it takes values of nodes that
    need not be computed, by their names: what was drawn, or what was computed before. With `only`
    it returns the values of these nodes.
    """
    nodes = live_nodes(graph, only)
    problems = [f"{missing} is not supported" for missing in _missing(nodes)]
    if not random:
        problems += [
            f"{_name(node)} ({where(node)}) draws random numbers"
            for node in nodes
            if is_random(node)
        ]
    refuse("lower", problems)
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    constants = {
        node: _to_numpy(operator.attrgetter(str(node.target))(graph))
        for node in nodes
        if node.op == "get_attr"
    }
    calls = [node for node in nodes if node.op == "call_function"]
    results = list(only) if only is not None else tree_leaves(nodes[-1].args[0])

    def function(
        *arrays, key: jax.Array | None = None, known: Mapping[str, Any] | None = None
    ) -> list:
        if len(arrays) != len(placeholders):
            raise TypeError(
                f"lower: the graph takes {len(placeholders)} arrays; received {len(arrays)}"
            )
        if random and key is None and known is None:
            raise TypeError("lower: random=True needs key, a key of jax.random")
        values: dict[Node, Any] = dict(zip(placeholders, map(jnp.asarray, arrays), strict=True))
        values |= {node: jnp.asarray(constant) for node, constant in constants.items()}
        for number, node in enumerate(calls):
            if known is not None and node.name in known:
                values[node] = jnp.asarray(known[node.name])
                continue
            args, kwargs = cast(Any, map_arg)((node.args, node.kwargs), values.__getitem__)
            if key is not None and is_random(node):
                kwargs = {**kwargs, "key": jax.random.fold_in(key, number)}
            values[node] = (RANDOM if is_random(node) else OPERATORS)[_name(node)](*args, **kwargs)
        return [values[result] if isinstance(result, Node) else result for result in results]

    return function


def missing(graph: GraphModule) -> list[Missing]:
    """Return the operators of a graph that the table lacks, each once a line."""
    return _missing(live_nodes(graph))


def _missing(nodes: list[Node]) -> list[Missing]:
    lacking = [
        Missing(name, where(node))
        for node in nodes
        if node.op not in {"placeholder", "get_attr", "output"}
        for name in _unsupported(node)
    ]
    return list(dict.fromkeys(lacking))


def _unsupported(node: Node) -> list[str]:
    name = _name(node)
    if node.op != "call_function" or name not in (RANDOM if is_random(node) else OPERATORS):
        return [name]
    return [f"{name} {trouble}" for trouble in _TROUBLES.get(name, _no_trouble)(node)]


def _no_trouble(node: Node) -> list[str]:
    return []


def _trouble_with_index(node: Node) -> list[str]:
    masks = _masks(node.args[1])
    return ["by a mask, whose result has a size that depends on values"] if masks else []


def _trouble_with_index_put(node: Node) -> list[str]:
    """A mask is fine if the values spread over all that it takes, as in `x[mask] = 0`."""
    x, indices, values, *_ = cast(tuple[Any, ...], node.args)
    if masks := _masks(indices):
        row_axes = _meta(x).ndim - sum(i is None for i in indices) - _meta(masks[0]).ndim
        others = [i for i in indices if i is not None and i is not masks[0]]
        if others or _meta(values).ndim > row_axes:
            return ["by a mask, with values whose number depends on values"]
    return []


def _trouble_with_strides(node: Node) -> list[str]:
    return [] if _meta(node.args[0]).is_contiguous() else ["of a tensor that is not contiguous"]


_TROUBLES = {
    "aten.index.Tensor": _trouble_with_index,
    "aten.index_put.default": _trouble_with_index_put,
    "aten.as_strided.default": _trouble_with_strides,
    "aten.as_strided_scatter.default": _trouble_with_strides,
}


def _masks(indices: Any) -> list[Node]:
    tensors = (index for index in indices if index is not None)
    return [index for index in tensors if _meta(index).dtype in {torch.bool, torch.uint8}]


def _meta(node: Any) -> torch.Tensor:
    """Return what is known of a node's value before it runs: shape, strides, dtype."""
    return node.meta["val"]


def is_random(node: Node) -> bool:
    """Return whether a node draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _name(node: Node) -> str:
    if isinstance(node.target, str):
        return node.target
    is_overload = isinstance(node.target, torch._ops.OpOverload)
    return str(node.target) if is_overload else getattr(node.target, "__name__", str(node.target))


def live_nodes(graph: GraphModule, ends: Collection[Node] | None = None) -> list[Node]:
    """Return the nodes that the outputs need, or that `ends` do, in order."""
    live: set[Node] = set(ends or ())
    for node in reversed(graph.graph.nodes):
        if (ends is None and node.op == "output") or node in live:
            live |= {node, *node.all_input_nodes}
    return [node for node in graph.graph.nodes if node in live]


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor's values as an array."""
    tensor = tensor.detach().cpu().clone()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()
