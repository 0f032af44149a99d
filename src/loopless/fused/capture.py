"""One loss and its gradients, caught by PyTorch's own tracer as a flat graph of core operators.

The tracer runs the loss on the user's own tensors and writes down every operator that they meet,
below autograd, so that `no_grad`, `detach` and custom autograd functions mean what they mean in
PyTorch. Tensors are told apart by identity: whatever the loss reaches a parameter through, it is
the same input of the graph. `tracing.py` does this, and `lowering.py` turns the graph into JAX.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from loopless.fused import batches
from loopless.fused.blame import FuseError, first_line, line_of, name_of, user_line
from loopless.fused.lowering import is_random, lower, missing
from loopless.fused.tracing import flatten, where

aten = torch.ops.aten


SLOT = (
    object()
)  # stands among a loss's further arguments for one that the program takes as an array
TENSOR = object()  # stands in `Captured.constants` for a leaf that is a tensor


@dataclass(frozen=True)
class Loss:
    """A loss as a function of leaves: the batch's, then those of its further arguments."""

    function: Callable
    module: Any
    structure: Any  # of the batch
    other_structure: Any
    other_leaves: list  # SLOT for an array

    def __call__(self, leaves: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """Return the value and the extras; None where the loss returns a value alone."""
        rest = iter(leaves)
        batch = batches.unflatten(self.structure, rest)
        filled = [next(rest) if leaf is SLOT else leaf for leaf in self.other_leaves]
        others = batches.unflatten(self.other_structure, filled)
        result = self.function(self.module, batch, *others)
        value, extras = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = getattr(value, "shape", None)
            kind = name_of(value) if shape is None else f"shape {tuple(shape)}"
            raise FuseError(
                f"fuse: the loss must return a scalar tensor, or (scalar, extras); received {kind} "
                f"({first_line(self.function)})"
            )
        return value, extras

    def gradients(self, leaves: Sequence[torch.Tensor], parameters: Sequence) -> tuple:
        """Return the value, the extras, and a gradient or None for each parameter."""
        with torch.enable_grad():
            value, extras = self(leaves)
            if not value.requires_grad:
                raise FuseError(
                    "fuse: the loss depends on no parameter that requires a gradient "
                    f"({first_line(self.function)})"
                )
            return value, extras, torch.autograd.grad(value, parameters, allow_unused=True)


@dataclass(frozen=True)
class Captured:
    """A loss as a function of arrays.

    `function(*tensors, *leaves)` takes what the loss reads and the batch's leaves, and returns a
    flat list: value, extras, gradients of the parameters in `reached`, new values of `written`.
    """

    function: Callable[..., list]
    tensors: list[torch.Tensor]  # those in the reading
    used: list[bool]  # of the arguments, which ones the function reads
    reached: list[int]  # places of parameters, among those asked for, that have a gradient
    written: list[int]  # places in `tensors` that the loss writes to
    extras: Any  # the structure of the extras
    constants: list  # for each leaf of the extras: its value if it is no tensor, else TENSOR
    random: bool
    graph: GraphModule
    coarsest: torch.dtype | None  # the floating dtype of the fewest bits that the loss computes in

    @property
    def has_extras(self) -> bool:
        """Whether the loss returns extras, None excepted."""
        return self.constants != [None]

    @property
    def extra_tensors(self) -> int:
        """How many of the outputs after the value are extras."""
        return sum(constant is TENSOR for constant in self.constants)


def capture(
    loss: Loss,
    parameters: list[torch.Tensor],
    tensors: list[torch.Tensor],
    leaves: list[torch.Tensor],
    *,
    random: bool,
) -> Captured:
    """Return a loss and its gradients by `parameters` as a function of arrays."""
    graph, reached, extras = _trace(loss, parameters, tensors, leaves)
    _refuse_hidden(graph)
    written = _take_writes(graph, len(tensors))
    drawn = [node for node in graph.graph.nodes if is_random(node)]
    if drawn and not random:
        raise FuseError(
            f"fuse: {drawn[0].target} draws random numbers{_at(where(drawn[0]))}, which a compiled "
            "program would draw but once; pass the noise in the batch, or random=True"
        )
    if lacking := missing(graph):
        raise FuseError(f"fuse: {lacking[0].operator} is not supported{_at(lacking[0].where)}")
    extra_leaves, structure = batches.flatten(extras)
    return Captured(
        lower(graph, random=bool(drawn)),
        tensors,
        [bool(node.users) for node in graph.graph.nodes if node.op == "placeholder"],
        reached,
        written,
        structure,
        [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in extra_leaves],
        bool(drawn),
        graph,
        _coarsest(graph),
    )


def _coarsest(graph: GraphModule) -> torch.dtype | None:
    values = [node.meta.get("val") for node in graph.graph.nodes if node.users]
    kinds = {v.dtype for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()}
    return max(kinds, key=lambda kind: torch.finfo(kind).eps, default=None)


def _at(place: str) -> str:
    return f" ({place})" if place else ""


def _trace(
    loss: Loss,
    parameters: list[torch.Tensor],
    tensors: list[torch.Tensor],
    leaves: list[torch.Tensor],
) -> tuple[GraphModule, list[int], Any]:
    """Return the graph of the loss and its gradients, which gradients there are, and the extras."""
    leaves = [leaf.clone() for leaf in leaves]
    reached, kept = [], None

    def run(*_: torch.Tensor) -> list:
        nonlocal reached, kept
        with _NoAutocast():
            value, kept, gradients = loss.gradients(leaves, parameters)
        reached = [place for place, gradient in enumerate(gradients) if gradient is not None]
        extras = [x.detach() for x in batches.flatten(kept)[0] if isinstance(x, torch.Tensor)]
        return [value.detach(), *extras, *(gradients[place] for place in reached)]

    try:
        return flatten(run, *tensors, *leaves), reached, kept
    except FuseError:
        raise
    except Exception as error:
        raise FuseError(f"fuse: {_explain(error)}{_at(line_of(error))}") from error


class _NoAutocast(TorchFunctionMode):
    """Refuses autocast inside of a loss: its cache of casts would outlive the trace."""

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        if torch.is_autocast_enabled("cpu"):
            raise FuseError(f"fuse: autocast inside a loss is not supported{_at(user_line())}")
        return func(*args, **(kwargs or {}))


def _explain(error: Exception) -> str:
    if "data-dependent" in str(error) or "_local_scalar_dense" in str(error):
        return (
            "the loss asks for the value of a tensor (`if`, .item(), float(), .numpy()), which a "
            "compiled program cannot do; use torch.where, or pass the number in the batch"
        )
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"the loss cannot be traced: {reason}"


def _refuse_hidden(graph: GraphModule) -> None:
    """Refuse a tensor that nobody but the loss can find: another in its place would go unnoticed.

    Tensors that the loss itself has made are constants of the graph too, and are fine.
    """
    for node in graph.graph.nodes:
        users = [u for u in node.users if u.target is not aten.lift_fresh_copy.default]
        if node.op == "get_attr" and users:
            shape = tuple(getattr(graph, str(node.target)).shape)
            raise FuseError(
                f"fuse: the loss reads a tensor of shape {shape} by a way that cannot be followed"
                f"{_at(where(users[0]))}, so that a later change would go unnoticed; pass it in "
                "the batch or as a further argument of the loss"
            )


def _take_writes(graph: GraphModule, tensors: int) -> list[int]:
    """Make values written to inputs outputs of the graph; return which of the tensors they are."""
    nodes = list(graph.graph.nodes)
    places = {node: n for n, node in enumerate(n for n in nodes if n.op == "placeholder")}
    output = nodes[-1]
    values = list(output.args[0])
    written = []
    for node in nodes:
        if node.op == "call_function" and node.target is aten.copy_.default:
            place = places[node.args[0]]
            if place < tensors:
                written.append(place)
                values.append(node.args[1])
            node.replace_all_uses_with(node.args[1])
            graph.graph.erase_node(node)
    output.args = (tuple(values),)
    return written


def _numpys() -> Any:
    return np.random.get_state()  # noqa: NPY002  # the user's, not ours


@contextlib.contextmanager
def undone(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Run a block, then put the values of some tensors and all generators back.

    Refuse a block that drew from the generators of Python or NumPy: a program would draw once.
    """
    copies = [tensor.detach().clone() for tensor in tensors]
    versions = [tensor._version for tensor in tensors]
    pythons, numpys, torchs = random.getstate(), _numpys(), torch.get_rng_state()
    try:
        yield
        drew = any(not np.array_equal(a, b) for a, b in zip(numpys, _numpys(), strict=True))
        if drew or random.getstate() != pythons:
            raise FuseError(
                "fuse: the loss draws from random or numpy.random, which a compiled program would "
                "do but once; pass the noise in the batch"
            )
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)  # noqa: NPY002
        torch.set_rng_state(torchs)
        with torch.no_grad():
            for tensor, copy, version in zip(tensors, copies, versions, strict=True):
                # A write through `.data` leaves the version as it is.
                if tensor._version != version or not torch.equal(tensor, copy):
                    tensor.detach().copy_(copy)
