"""Rows of logits on PyTorch tensors, in chunks of rows, and their derivative as a node of autograd.

Eager execution on the CPU takes compiled code instead, by way of `numpy.py`; this is for other
devices, for compilation and for transforms. There the gradient is not kept from the forward pass
but computed in the backward pass, from the logits and a few numbers a row. As in `scan/torch.py`,
the node stands twice: an operator for tracing, a function for eager execution and transforms.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from loopless.arrays import dispatch
from loopless.arrays.dispatch import is_traced
from loopless.arrays.logits import numpy as host
from loopless.arrays.logits.numpy import Difference, Slope

CHUNK = 1 << 22  # numbers of a chunk of rows


def survey(logits: Tensor, k: int, rate, floor: float) -> tuple[Tensor, ...]:
    parts = [_survey(part, k, rate, floor) for part in _chunks(logits)]
    shape = logits.shape[:-1]
    return tuple(torch.cat(x).unflatten(0, shape) for x in zip(*parts, strict=True))


def _survey(x: Tensor, k: int, rate, floor: float) -> tuple[Tensor, ...]:
    x = _wide(x)
    values, top = x.topk(k)
    peak = values[:, 0]
    shifted = (x - peak[:, None]) * rate
    log_total = shifted.exp().sum(-1).log()
    log_pi = shifted - log_total[:, None]
    pi = log_pi.exp()
    if floor:
        raised = pi + floor
        entropy = -(pi * raised.log()).sum(-1)
        return top, peak, log_total, entropy, (pi * pi / raised).sum(-1) - entropy
    entropy = -torch.where(pi > 0, pi * log_pi, 0).sum(-1)
    return top, peak, log_total, entropy, -entropy


def divergence(logits: Tensor, slope) -> Tensor:
    parts = []
    for part, other, *row in _rows(logits, slope.others, *_columns(slope)):
        log_pi, log_q = _logs(part, other, row, slope.rate)
        q = log_q.exp()
        parts.append(torch.where(q > 0, q * (log_q - log_pi), 0).sum(-1))
    return torch.cat(parts).reshape(logits.shape[:-1])


def gradient(logits: Tensor, slope, floor: float) -> Tensor:
    """Return the derivative that the slope describes, [..., V], in the logits' own dtype."""
    flat = logits.flatten(0, -2)
    if isinstance(slope, Difference):
        fields = (slope.others, *_columns(slope), slope.alpha)
        parts = (_differences(*row, rate=slope.rate) for row in _rows(logits, *fields))
    else:
        fields = (slope.peak, slope.log_total, slope.alpha, slope.beta, slope.tokens, slope.less)
        rows = _rows(logits, *fields, slope.counted)
        parts = (_slopes(*row, rate=slope.rate, floor=floor) for row in rows)
    length = _length(logits)
    if len(flat) <= length:
        return next(iter(parts)).reshape(logits.shape)
    out = torch.empty_like(flat, memory_format=torch.contiguous_format)
    for chunk, part in enumerate(parts):
        out[chunk * length : (chunk + 1) * length] = part
    return out.reshape(logits.shape)


def _slopes(x, peak, log_total, alpha, beta, tokens, less, counted, *, rate, floor):
    log_pi = (_wide(x) - peak[:, None]) * rate - log_total[:, None]
    pi = log_pi.exp()
    if floor:
        raised = pi + floor
        h = raised.log() + pi / raised
    else:
        h = torch.where(pi > 0, log_pi, 0)
    out = pi * (alpha[:, None] + beta[:, None] * h)
    if counted is not None:
        out = torch.where(counted[:, None], out, 0)
    return out.scatter_add(-1, tokens, -less).to(x.dtype)


def _differences(x, other, peak, log_total, other_peak, other_log_total, counted, alpha, *, rate):
    log_pi, log_q = _logs(x, other, (peak, log_total, other_peak, other_log_total, counted), rate)
    out = alpha[:, None] * (log_pi.exp() - log_q.exp())
    if counted is not None:
        out = torch.where(counted[:, None], out, 0)
    return out.to(x.dtype)


def _columns(slope):
    return slope.peak, slope.log_total, slope.other_peak, slope.other_log_total, slope.counted


def _logs(x, other, row, rate):
    peak, log_total, other_peak, other_log_total, _ = row
    log_pi = (_wide(x) - peak[:, None]) * rate - log_total[:, None]
    log_q = (_wide(other).to(log_pi.dtype) - other_peak[:, None]) * rate - other_log_total[:, None]
    return log_pi, log_q


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _length(logits: Tensor) -> int:
    return max(1, CHUNK // logits.shape[-1])


def _chunks(logits: Tensor) -> tuple[Tensor, ...]:
    return logits.flatten(0, -2).split(_length(logits))


def _rows(logits: Tensor, *fields):
    """Yield chunks of the logits, each with its rows of the fields [..., *]."""
    axes, length = logits.ndim - 1, _length(logits)
    parts = [None if x is None else x.flatten(0, axes - 1).split(length) for x in fields]
    for i, chunk in enumerate(_chunks(logits)):
        yield chunk, *(None if x is None else x[i] for x in parts)


class _WithGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(loss, logits, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        return loss.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx, cotangent):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, _scale(ctx, _refuse_twice(cotangent)), None


@once_differentiable
def _scale(ctx, cotangent):
    (gradient,) = ctx.saved_tensors
    if not is_traced(torch) and cotangent.item() == 1:
        return gradient
    return gradient * cotangent.to(gradient.dtype)


def _refuse_twice(cotangent: Tensor) -> Tensor:
    """Return `cotangent` such that differentiating again raises instead of giving 0."""
    if torch.is_grad_enabled() and not is_traced(torch):
        return cotangent.detach().requires_grad_()
    return cotangent


def with_gradient(loss: Tensor, logits: Tensor, gradient: Tensor) -> Tensor:
    """Return `loss` with this derivative by `logits`; differentiable once.

    The gradient is not copied: after a change in place a second backward pass is an error.
    """
    return _WithGradient.apply(loss, logits, gradient)  # pyright: ignore[reportReturnType]


def with_slope(loss: Tensor, logits: Tensor, slope, floor: float) -> Tensor:
    """Return `loss` with the slope as its derivative by `logits`; differentiable once."""
    *tensors, counted, rate = slope
    fields = loss, logits, tensors, counted, rate, floor, isinstance(slope, Difference)
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return _operator(*fields)
    return _Function.apply(loss, logits, *tensors, *fields[3:])  # pyright: ignore[reportReturnType]


def _backward(ctx, cotangent):
    logits, *tensors = ctx.saved_tensors
    counted = tensors.pop() if ctx.masked else None
    kind = Difference if ctx.is_difference else Slope
    slope = kind._make((*tensors, counted, ctx.rate))
    names = ("alpha",) if ctx.is_difference else ("alpha", "beta", "less")
    slope = slope._replace(**{name: getattr(slope, name) * cotangent for name in names})
    views = None if is_traced(torch) else dispatch.numpy_views(torch, (logits, *slope))
    if views is None:
        return gradient(logits, slope, ctx.floor)
    return torch.from_numpy(host.gradient(views[0], slope._make(views[1:]), ctx.floor))


def _keep(ctx, logits, tensors, counted, rate, floor, is_difference) -> None:
    ctx.rate, ctx.floor, ctx.is_difference, ctx.masked = (
        rate,
        floor,
        is_difference,
        counted is not None,
    )
    # Saved the official way, so that logits overwritten before backward are an error.
    ctx.save_for_backward(logits, *tensors, *([counted] if ctx.masked else []))


class _Function(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(loss, logits, *fields):  # pyright: ignore[reportIncompatibleMethodOverride]
        return loss.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, logits, *tensors, counted, rate, floor, is_difference = inputs
        ctx.count = len(inputs)
        _keep(ctx, logits, tensors, counted, rate, floor, is_difference)

    @staticmethod
    def backward(ctx, cotangent):  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, _once(ctx, _refuse_twice(cotangent)), *[None] * (ctx.count - 2)


_once = once_differentiable(_backward)


@torch.library.custom_op("loopless::sloped", mutates_args=())
def _operator(
    loss: Tensor,
    logits: Tensor,
    tensors: list[Tensor],
    counted: Tensor | None,
    rate: float,
    floor: float,
    is_difference: bool,
) -> Tensor:
    return loss.clone()


@_operator.register_fake
def _(loss, logits, tensors, counted, rate, floor, is_difference):
    return torch.empty_like(loss)


def _operator_context(ctx, inputs, output) -> None:
    _, logits, tensors, *rest = inputs
    ctx.count = len(tensors)
    _keep(ctx, logits, tensors, *rest)


def _operator_backward(ctx, cotangent):
    return None, _backward(ctx, cotangent), [None] * ctx.count, *[None] * 4


_operator.register_autograd(_operator_backward, setup_context=_operator_context)
