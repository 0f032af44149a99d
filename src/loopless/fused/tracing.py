"""Traces a PyTorch function to a flat graph of core ATen operators that knows the user's lines.

`flatten` runs the function twice on the tensors that it is given: once to record what it does, with
gradients, and once more to take in-place writes and composite operators apart. Next: `lowering.py`.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.distributions import Distribution
from torch.fx import GraphModule, Interpreter, Node
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from loopless.fused.blame import user_line


@functools.cache
def first_decompositions() -> dict:
    """Return what is taken apart while the user's code runs.

    Batch normalization writes its running statistics without saying so in its schema, so that
    functionalization would lose them. PyTorch's own decomposition writes them in the open.
    """
    return get_decompositions([torch.ops.aten.native_batch_norm])


@functools.cache
def core_decompositions() -> dict:
    """Return what is taken apart afterwards: all that is not a core operator."""
    return dict(core_aten_decompositions())


def flatten(function: Callable, *tensors: torch.Tensor) -> GraphModule:
    """Return the graph of core ATen operators that `function` runs on `tensors`, free of writes."""
    with fx_traceback.preserve_node_meta(), plain_operators():
        with UserLines():
            graph = make_fx(lambda *inputs: function(*inputs), first_decompositions())(*tensors)
        # Gradients are in the graph by now, and its writes are not to reach the caller's tensors.
        with torch.no_grad():
            copies = [tensor.detach().clone() for tensor in tensors]
            run = torch.func.functionalize(Interpreter(graph).run)
            return make_fx(run, core_decompositions())(*copies)


def where(node: Node) -> str:
    """Return the user's line that a node comes from, as "file.py:12, in loss", or ""."""
    return node.stack_trace or ""


@contextmanager
def plain_operators() -> Iterator[None]:
    """Have PyTorch choose operators that decompose, and leave out checks that read values.

    Attention and recurrent layers have fused kernels otherwise, and the distributions look at their
    arguments, which a graph cannot.
    """
    validates = Distribution._validate_args
    set_flags: Any = torch.backends.mkldnn.set_flags
    enabled, *_ = set_flags(False, None, None, None)
    Distribution.set_default_validate_args(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        Distribution.set_default_validate_args(validates)
        set_flags(enabled, None, None, None)


class UserLines(TorchFunctionMode):
    """Writes the user's line on every node that is traced within, gradients included.

    Functions that look at values before they compute are replaced by ones that do not.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        line = user_line()
        fx_traceback.set_stack_trace([line])
        result = _WITHOUT_CHECKS.get(func, func)(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                _label_gradients(tensor.grad_fn, line)
        return result


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 0:  # the number of classes depends on values: PyTorch says so
        return F.one_hot(tensor, num_classes)
    return (tensor[..., None] == torch.arange(num_classes)).to(torch.int64)


def _gaussian_nll_loss(
    input, target, var, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> torch.Tensor:
    """Like PyTorch's, but for a check that no variance is negative."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape != input.shape and input.shape[:-1] == var.shape:
        var = var[..., None]
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": torch.mean, "sum": torch.sum, "none": lambda x: x}[reduction](loss)


_WITHOUT_CHECKS = {F.one_hot: _one_hot, F.gaussian_nll_loss: _gaussian_nll_loss}


def _label_gradients(function: Any, line: str) -> None:
    """Have the gradients of what was just computed write the same line, when they run."""
    waiting = [function]
    while waiting:
        function = waiting.pop()
        if function is not None and "line" not in function.metadata:
            function.metadata["line"] = line
            function.register_prehook(lambda gradients: fx_traceback.set_stack_trace([line]))
            waiting += [following for following, _ in function.next_functions]
