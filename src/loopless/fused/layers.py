"""The layers and functions of PyTorch that `forward` and `actor` know, and what each becomes.

The two dictionaries at the end say which: `LAYERS` by class, `FUNCTIONS` by what `torch.fx` calls
a function or a method. A handler adds operations to the table and returns the result's place.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from loopless.compiled import program as ops
from loopless.fused.table import Stored, Table, Unreadable, Value


@dataclass(frozen=True)
class _Sizes:
    """The shape of a value, or one of its entries; only `view` and `expand` read it."""

    of: Value
    dim: int | None = None


# --- layers --------------------------------------------------------------------------------------


def _of(table: Table, layer: nn.Module, name: str) -> Stored | None:
    """Return a parameter or buffer of this layer, None if it has none."""
    stored = Stored(layer._parameters if name in layer._parameters else layer._buffers, name)
    if stored.tensor is not None:
        return stored
    table.absent.append(stored)


def _linear_layer(table: Table, x: Value, layer: Any) -> Value:
    return _linear(table, x, _of(table, layer, "weight"), _of(table, layer, "bias"))


def _layer_norm_layer(table: Table, x: Value, layer: Any) -> Value:
    parameters = _of(table, layer, "weight"), _of(table, layer, "bias")
    return _layer_norm(table, x, layer.normalized_shape, *parameters, layer.eps)


def _batch_norm_layer(table: Table, x: Value, layer: Any) -> Value:
    if layer.training or layer.running_mean is None:
        raise Unreadable(
            "is BatchNorm1d in training mode or without running statistics, so that its outputs "
            "depend on the other rows. Call eval() on the module before it acts"
        )
    weight, bias, epsilon = (
        _of(table, layer, "weight"),
        _of(table, layer, "bias"),
        table.address(layer.eps),
    )
    statistics = _of(table, layer, "running_mean"), _of(table, layer, "running_var")
    return table.normalize(
        ops.BATCH_NORM, x, layer.num_features, weight, bias, epsilon, *statistics
    )


def _like(function: Callable, *names: str) -> Callable:
    """Return the handler of a layer that is this function of x and of the layer's attributes."""
    return lambda table, x, layer: function(table, x, *(getattr(layer, name) for name in names))


# --- functions -----------------------------------------------------------------------------------


def _plain(code: int) -> Callable:
    return lambda table, x, inplace=False: table.unary(code, x)


def _elu(table, x, alpha=1.0, inplace=False):
    return table.unary(ops.ELU, x, alpha)


def _leaky_relu(table, x, negative_slope=0.01, inplace=False):
    return table.unary(ops.LEAKY_RELU, x, negative_slope)


def _softplus(table, x, beta=1.0, threshold=20.0):
    return table.unary(ops.SOFTPLUS, x, beta, threshold)


def _gelu(table, x, approximate="none"):
    return table.unary(ops.GELU if approximate == "none" else ops.GELU_TANH, x)


def _clamp(table, x, min=None, max=None, inplace=False):
    x = x if min is None else table.binary(ops.MAXIMUM, x, min)
    return x if max is None else table.binary(ops.MINIMUM, x, max)


def _relu6(table, x, inplace=False):
    return _clamp(table, x, 0.0, 6.0)


def _softmax(code: int) -> Callable:
    return lambda table, x, dim=None, _stacklevel=3, dtype=None: table.reduce(code, x, dim)


def _mean_or_sum(code: int) -> Callable:
    return lambda table, x, dim=None, keepdim=False: table.reduce(code, x, dim, keepdim)


def _arithmetic(code: int) -> Callable:
    return lambda table, left, right: table.binary(code, left, right)


def _negative(table, x):
    return table.binary(ops.MULTIPLY, x, -1.0)


def _power(table, x, exponent):
    if exponent == 2:
        return table.binary(ops.MULTIPLY, x, x)
    if exponent == 0.5:
        return table.unary(ops.SQRT, x)
    raise Unreadable(f"raises to the power {exponent!r}; 2 and 0.5 are known")


def _square(table, x):
    return table.binary(ops.MULTIPLY, x, x)


def _linear(table, x, weight, bias=None):
    if not isinstance(weight, Stored):
        raise Unreadable("has a weight that is computed; it must be a parameter")
    return table.linear(table.value(x), weight, bias)


def _layer_norm(table, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    if len(normalized_shape) != 1:
        raise Unreadable(f"normalizes over {tuple(normalized_shape)}; one dimension is known")
    x, epsilon = table.value(x), table.address(eps)
    return table.normalize(ops.LAYER_NORM, x, normalized_shape[0], weight, bias, epsilon)


def _dropout(table, x, p=0.5, training=True, inplace=False):
    if training and p > 0:
        raise Unreadable("is Dropout in training mode. Call eval() on the module before it acts")
    return x


def _same(table, x):
    return x


def _convert(table, x, *kinds, dtype=None, device=None, non_blocking=False, copy=False):
    for kind in (*kinds, dtype, device):
        if isinstance(kind, torch.dtype) and kind != torch.float32:
            raise Unreadable(f"makes it {kind}; float32 is known")
        if isinstance(kind, str | torch.device) and torch.device(kind).type != "cpu":
            raise Unreadable(f"moves it to {kind}; the CPU is known")
    return x


def _flatten(table, x, start_dim=0, end_dim=-1):
    if start_dim not in (1, -1) or end_dim not in (1, -1):
        raise Unreadable(f"has start_dim={start_dim}; it must be 1, to keep the rows apart")
    return x


def _view(table, x, *shape):
    x = table.value(x)
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    last = isinstance(shape[-1], int) and shape[-1] in (-1, x.width)
    if len(shape) == 2 and (shape[0] == -1 or shape[0] == _Sizes(x, 0)) and last:
        return replace(x, flat=False)
    if len(shape) == 1 and x.width == 1:
        return replace(x, flat=True)
    raise Unreadable("changes the shape; only [n, …] to [n, -1] is known")


def _squeeze(table, x, dim=-1):
    x = table.value(x)
    if dim not in (-1, 1):
        raise Unreadable(f"has dim={dim}; it must be -1")
    return replace(x, flat=True) if x.width == 1 else x


def _unsqueeze(table, x, dim):
    x = table.value(x)
    if dim not in (-1, 1) or not x.flat:
        raise Unreadable(f"adds a dimension at {dim}; only [n] to [n, 1] is known")
    return replace(x, flat=False)


def _expand(table, x, *shape):
    x = table.value(x)
    size = shape[0] if len(shape) == 1 else shape[-1]
    width = size.of.width if isinstance(size, _Sizes) else size
    return table.widen(x, x.width if width == -1 else width)


def _expand_as(table, x, other):
    return table.widen(x, other.width, other.flat)


def _constant_like(number: float) -> Callable:
    return lambda table, x: table.widen(number, x.width, x.flat)


def _cat(table, tensors, dim=0):
    parts = [table.features(part, dim) for part in tensors]
    y = table.room(sum(part.width for part in parts), made_by=ops.COPY)
    at = y.at
    for part in parts:
        table.step(ops.COPY, Value(at, part.width), part, part.width)
        at += 4 * part.width
    return y


def _chunk(table, x, chunks, dim=0):
    return _split(table, x, -(-table.value(x).width // chunks), dim)


def _split(table, x, size, dim=0):
    x = table.features(x, dim)
    sizes = size if isinstance(size, tuple | list) else [size] * (x.width // size)
    sizes = [*sizes, *([x.width - sum(sizes)] if sum(sizes) < x.width else [])]
    ends = np.cumsum(sizes).tolist()
    return tuple(
        replace(x, at=x.at + 4 * (end - n), width=n) for n, end in zip(sizes, ends, strict=True)
    )


def _item(table, x, key):
    if isinstance(x, tuple):
        return x[key]
    if isinstance(x, _Sizes):
        return replace(x, dim=key)
    x = table.value(x)
    key = (
        key[1]
        if isinstance(key, tuple) and len(key) == 2 and key[0] in (..., slice(None))
        else None
    )
    if isinstance(key, int) and not x.flat and -x.width <= key < x.width:
        return replace(x, at=x.at + 4 * (key % x.width), width=1, flat=True)
    if not isinstance(key, slice) or key.step not in (None, 1) or x.flat:
        raise Unreadable("takes a part that is not known; x[:, a:b] is")
    start, stop, _ = key.indices(x.width)
    return replace(x, at=x.at + 4 * start, width=stop - start)


def _shape(table, x, name="shape"):
    if name != "shape":
        raise Unreadable(f"reads .{name}, which is not known")
    return _Sizes(x)


def _size(table, x, dim=None):
    return _Sizes(x, dim)


LAYERS: dict[type[nn.Module], Callable] = {
    nn.Linear: _linear_layer,
    nn.LayerNorm: _layer_norm_layer,
    nn.BatchNorm1d: _batch_norm_layer,
    nn.Dropout: _like(_dropout, "p", "training"),
    nn.Flatten: _like(_flatten, "start_dim", "end_dim"),
    nn.Identity: _like(_same),
    nn.ReLU: _like(_plain(ops.RELU)),
    nn.Tanh: _like(_plain(ops.TANH)),
    nn.Sigmoid: _like(_plain(ops.SIGMOID)),
    nn.SiLU: _like(_plain(ops.SILU)),
    nn.SELU: _like(_plain(ops.SELU)),
    nn.Mish: _like(_plain(ops.MISH)),
    nn.ELU: _like(_elu, "alpha"),
    nn.LeakyReLU: _like(_leaky_relu, "negative_slope"),
    nn.Softplus: _like(_softplus, "beta", "threshold"),
    nn.GELU: _like(_gelu, "approximate"),
    nn.Hardtanh: _like(_clamp, "min_val", "max_val"),
    nn.ReLU6: _like(_clamp, "min_val", "max_val"),
    nn.Softmax: _like(_softmax(ops.SOFTMAX), "dim"),
    nn.LogSoftmax: _like(_softmax(ops.LOG_SOFTMAX), "dim"),
}
IN_PLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv}
_NAMES: list[tuple[Callable, tuple]] = [
    (_plain(ops.RELU), (F.relu, torch.relu, "relu")),
    (_plain(ops.TANH), (F.tanh, torch.tanh, "tanh")),
    (_plain(ops.SIGMOID), (F.sigmoid, torch.sigmoid, "sigmoid")),
    (_plain(ops.SILU), (F.silu,)),
    (_plain(ops.SELU), (F.selu, torch.selu)),
    (_plain(ops.MISH), (F.mish,)),
    (_plain(ops.EXP), (torch.exp, "exp")),
    (_plain(ops.LOG), (torch.log, "log")),
    (_plain(ops.SQRT), (torch.sqrt, "sqrt")),
    (_plain(ops.ABS), (torch.abs, "abs")),
    (_elu, (F.elu,)),
    (_leaky_relu, (F.leaky_relu,)),
    (_softplus, (F.softplus,)),
    (_gelu, (F.gelu,)),
    (_clamp, (torch.clamp, torch.clip, F.hardtanh, "clamp", "clip")),
    (_relu6, (F.relu6,)),
    (_softmax(ops.SOFTMAX), (F.softmax, torch.softmax, "softmax")),
    (_softmax(ops.LOG_SOFTMAX), (F.log_softmax, torch.log_softmax, "log_softmax")),
    (_mean_or_sum(ops.MEAN), (torch.mean, "mean")),
    (_mean_or_sum(ops.SUM), (torch.sum, "sum")),
    (_arithmetic(ops.ADD), (operator.add, operator.iadd, torch.add, "add")),
    (_arithmetic(ops.SUBTRACT), (operator.sub, operator.isub, torch.sub, "sub")),
    (_arithmetic(ops.MULTIPLY), (operator.mul, operator.imul, torch.mul, "mul")),
    (_arithmetic(ops.DIVIDE), (operator.truediv, operator.itruediv, torch.div, "div")),
    (_arithmetic(ops.MAXIMUM), (torch.maximum, "maximum")),
    (_arithmetic(ops.MINIMUM), (torch.minimum, "minimum")),
    (_negative, (operator.neg, torch.neg, "neg")),
    (_power, (operator.pow, torch.pow, "pow")),
    (_square, (torch.square, "square")),
    (_linear, (F.linear,)),
    (_layer_norm, (F.layer_norm,)),
    (_dropout, (F.dropout,)),
    (_same, ("float", "contiguous", "detach", "clone", "cpu", torch.clone, torch.detach)),
    (_convert, ("to", "type")),
    (_flatten, (torch.flatten, "flatten")),
    (_view, ("view", "reshape", torch.reshape)),
    (_squeeze, (torch.squeeze, "squeeze")),
    (_unsqueeze, (torch.unsqueeze, "unsqueeze")),
    (_expand, ("expand",)),
    (_expand_as, ("expand_as",)),
    (_constant_like(0.0), (torch.zeros_like,)),
    (_constant_like(1.0), (torch.ones_like,)),
    (_cat, (torch.cat, torch.concat, torch.concatenate)),
    (_chunk, (torch.chunk, "chunk")),
    (_split, (torch.split, "split")),
    (_item, (operator.getitem,)),
    (_shape, (getattr,)),
    (_size, ("size",)),
]
FUNCTIONS: dict[Any, Callable] = {name: handler for handler, names in _NAMES for name in names}
CHANGES_WIDTH = {
    name
    for handler, names in _NAMES
    if handler in (_cat, _chunk, _split, _item, _shape, _size) or names[-1] in ("mean", "sum")
    for name in names
}
