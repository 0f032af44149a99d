"""What the updates of a call do not change in a loss, so that it can be computed for all at once.

A target network reads the batches alone: K small products are one large product. Nodes of the graph
are early if they depend on nothing that an update moves.
"""

import math

import torch
from torch.fx import GraphModule, Node

from loopless.fused.lowering import is_random, live_nodes

MOST_BYTES = 2**18  # of one intermediate array: what is computed at once stays in the cache
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution")


def find(graph: GraphModule, moving: set[int], batch: range) -> list[Node]:
    """Return the last nodes, in order, that depend on products and batches but on nothing moving.

    `moving` are the places of inputs that updates change, and `batch` those of the batch's leaves.
    """
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    late = {node for place, node in enumerate(inputs) if place in moving}
    drawn, heavy = {inputs[place] for place in batch}, set()
    nodes = live_nodes(graph)
    for node in nodes:
        sources = node.all_input_nodes
        if is_random(node) or node.op == "output" or not late.isdisjoint(sources):
            late.add(node)
        if not drawn.isdisjoint(sources):
            drawn.add(node)
        if _is_product(node) or not heavy.isdisjoint(sources):
            heavy.add(node)
    live = set(nodes)
    return [
        node
        for node in nodes
        if node not in late
        and node in drawn
        and node in heavy
        and isinstance(node.meta.get("val"), torch.Tensor)
        and any(user in live and user in late for user in node.users)
    ]


def chunk(graph: GraphModule, nodes: list[Node], updates: int) -> int:
    """Return for how many updates at once the nodes are computed; 0 for none."""
    if not nodes:
        return 0
    sizes = [_bytes(node) for node in live_nodes(graph, nodes)]
    return min(updates, MOST_BYTES // max(sizes))


def _bytes(node: Node) -> int:
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return 1
    return max(1, math.prod(value.shape) * value.element_size())


def _is_product(node: Node) -> bool:
    name = getattr(node.target, "_schema", None)
    return name is not None and name.name.removeprefix("aten::") in _PRODUCTS
