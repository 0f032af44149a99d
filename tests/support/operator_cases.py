"""What each operator of the lowering table is tried on: a function of tensors, and their shapes.

A shape stands for normal numbers, `Positive` for numbers in [0.1, 1.1), `Whole` for integers below
a bound, `Mask` for booleans. The tensors of a case are the same at every run.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

aten = torch.ops.aten


@dataclass(frozen=True)
class Positive:
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Whole:
    bound: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Mask:
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable
    arguments: tuple

    def tensors(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """Return the arguments of this case, floating ones in a dtype."""
        draws = torch.Generator().manual_seed(zlib.crc32(self.name.encode()))
        return [_draw(argument, dtype, draws) for argument in self.arguments]


def _draw(argument, dtype, draws) -> torch.Tensor:
    match argument:
        case Positive(shape):
            return (torch.rand(shape, generator=draws, dtype=torch.float64) + 0.1).to(dtype)
        case Whole(bound, shape):
            return torch.randint(bound, shape, generator=draws)
        case Mask(shape):
            return torch.rand(shape, generator=draws) < 0.5
        case shape:
            return torch.randn(shape, generator=draws, dtype=torch.float64).to(dtype)


X, Y, ROW = (3, 4), (3, 4), (4,)
CASES: list[Case] = []


def _with_ties(x: torch.Tensor) -> torch.Tensor:
    """Return whole numbers, many of them equal, with the gradient of x."""
    return x.detach().round() + (x - x.detach())


def case(name: str, function: Callable, *arguments) -> None:
    CASES.append(Case(name, function, arguments or (X,)))


# --- element by element ----------------------------------------------------------------------

ANYWHERE = "sin cos sinh cosh tanh exp exp2 expm1 atan asinh erf erfc sigmoid abs neg sign lgamma"
for name in f"{ANYWHERE} floor ceil trunc round relu hardtanh leaky_relu elu gelu digamma".split():
    case(name, getattr(aten, name).default)
WITHIN_ONE = "log log2 log10 log1p sqrt rsqrt reciprocal tan asin acos atanh erfinv"
for name in WITHIN_ONE.split():
    case(name, lambda x, name=name: getattr(aten, name)(x * 0.9), Positive(X))
case("acosh", lambda x: aten.acosh(x + 1), Positive(X))
case("gelu tanh", lambda x: aten.gelu(x, approximate="tanh"))
case("elu scaled", lambda x: aten.elu(x, 1.5, 1.1, 0.7))
case("leaky_relu slope", lambda x: aten.leaky_relu(x, 0.3))
case("hardtanh bounds", lambda x: aten.hardtanh(x, -0.3, 0.4))
case("softshrink", lambda x: F.softshrink(x, 0.3))
case("hardshrink", lambda x: F.hardshrink(x, 0.3))
case("polygamma", lambda x: (aten.polygamma(1, x), aten.polygamma(3, x.abs())))
case(
    "activations",
    lambda x: (F.silu(x), F.mish(x), F.softplus(x), F.selu(x), F.logsigmoid(x), F.hardswish(x)),
)

for name in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot"):
    case(name, getattr(torch, name), X, ROW)
case("add alpha", lambda x, y: (aten.add(x, y, alpha=2), aten.sub(x, y, alpha=0.5)), X, Y)
case(
    "scalars",
    lambda x: (
        aten.add.Scalar(x, 2),
        aten.sub.Scalar(x, 2),
        aten.mul.Scalar(x, 3),
        aten.div.Scalar(x, 3),
    ),
)
case("rsub", lambda x: aten.rsub.Scalar(x, 2.5, 0.5))
case(
    "div by mode",
    lambda x, y: (
        aten.div(x, y, rounding_mode="floor"),
        aten.div(x, y, rounding_mode="trunc"),
        aten.div.Tensor_mode(x, y, rounding_mode=None),
    ),
    X,
    ROW,
)
case(
    "div by mode, a number",
    lambda x: (
        aten.div.Scalar_mode(x, 0.3, rounding_mode="floor"),
        aten.div.Scalar_mode(x, -0.3, rounding_mode="trunc"),
    ),
)
case(
    "remainder",
    lambda x, y: (aten.remainder(x, y), aten.remainder(x, 0.3), aten.remainder(x, -0.3)),
    X,
    ROW,
)
case("fmod", lambda x, y: (aten.fmod(x, y), aten.fmod(x, 0.3), aten.fmod(x, -0.3)), X, Y)
case("pow", lambda x, y: (aten.pow(x, y), aten.pow(2.5, y), aten.pow(x, 1.7)), Positive(X), Y)
case("pow of numbers", lambda x: tuple(aten.pow(x, p) for p in (0, 1, 2, 3, 4, -1, -2, 2.0)))
case("pow of roots", lambda x: (aten.pow(x, 0.5), aten.pow(x, -0.5)), Positive(X))
case("addcmul", lambda x, y, z: aten.addcmul(x, y, z, value=0.5), X, Y, ROW)
case("addcdiv", lambda x, y, z: aten.addcdiv(x, y, z, value=0.5), X, Y, Positive(ROW))
case(
    "clamp",
    lambda x: (
        aten.clamp(x, -0.5, 0.5),
        aten.clamp(x, 0.1),
        aten.clamp(x, None, 0.2),
        aten.clamp(x, 0.5, -0.5),
    ),
)
case(
    "clamp by tensors",
    lambda x, y: (
        aten.clamp.Tensor(x, -y, y),
        aten.clamp.Tensor(x, y),
        aten.clamp.Tensor(x, None, y),
    ),
    X,
    ROW,
)
case("where", lambda m, x, y: (aten.where(m, x, y), aten.where(m, x, 0)), Mask(X), X, ROW)
case(
    "nan_to_num",
    lambda x: (aten.nan_to_num(x.log()), aten.nan_to_num((x.sign() - 1) / 0.0, 1.0, 2.0, 3.0)),
)
case("isnan", lambda x: (aten.isnan(x.log()), aten.isinf(x / 0.0)))
for function in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
    case(str(function), lambda x, y, f=function: (f(x, y), f(x, 0.1), f(x, x)), X, ROW)
case(
    "logical",
    lambda x, m: (
        aten.logical_and(x, m),
        aten.logical_or(x, m),
        aten.logical_xor(x, m),
        aten.logical_not(x),
    ),
    X,
    Mask(X),
)
case(
    "bitwise",
    lambda m, n: (
        m & n,
        m | n,
        m ^ n,
        ~m,
        aten.bitwise_and(m, True),
        aten.bitwise_or(m, False),
        aten.bitwise_xor(m, True),
    ),
    Mask(X),
    Mask(X),
)
case(
    "casts",
    lambda x, i, m: (
        x.double(),
        x.float(),
        x.long(),
        i.to(torch.uint8),
        m.float(),
        m.long(),
        x.bool(),
        i.float(),
        x.half().float(),
        x.bfloat16().float(),
    ),
    X,
    Whole(9, X),
    Mask(X),
)
case("scalar_tensor", lambda x: x + aten.scalar_tensor(2.0, dtype=torch.float64) + torch.tensor(3))

# --- integers and booleans -------------------------------------------------------------------

WHOLE, MORE = Whole(9, X), Whole(9, X)
case(
    "integer sums",
    lambda i, j: (i + j, i - j, i * j, -i, abs(i - j), i + 1, 2 - i, i * 2, aten.sign(i - j)),
    WHOLE,
    MORE,
)
case(
    "integer division",
    lambda i, j: (
        (i - 5) // (j + 1),
        (i - 5) % (j + 1),
        torch.fmod(i - 5, j + 1),
        i / 2,
        i / (j + 1),
        (i - 4) // -3,
        (i - 4) % -3,
        torch.div(i - 5, 3, rounding_mode="trunc"),
    ),
    WHOLE,
    Whole(9, ROW),
)
case(
    "integers with numbers",
    lambda i: (
        i + 0.5,
        i * 1.5,
        i > 0.5,
        i == 3,
        i**2,
        i.clamp(2, 5),
        i.clamp(1.5),
        torch.where(i > 2, i, 0.5),
    ),
    WHOLE,
)
case(
    "integers with floats",
    lambda i, x: (i + x, i * x, x / (i + 1), i > x, torch.maximum(i, x), x**i),
    WHOLE,
    X,
)
case("integer powers", lambda i, j: (i ** (j % 4), torch.pow(2, i)), WHOLE, MORE)
case(
    "integer functions",
    lambda i: (
        i.sin(),
        (i + 1).log(),
        i.sigmoid(),
        i.floor(),
        (i + 1).rsqrt(),
        i.relu(),
        (i + 1).reciprocal(),
        i.exp(),
        i.isnan(),
        (i + 1).lgamma(),
    ),
    WHOLE,
)
case("integer bits", lambda i, j: (i & j, i | 3, i ^ j, ~i), WHOLE, MORE)
case(
    "boolean arithmetic",
    lambda m, n: (
        m + n,
        m * n,
        m + 1,
        m * 0.5,
        m.sum(),
        m.float().mean(),
        m.cumsum(0),
        m.to(torch.int32) + n,
        m.any(),
        m == n,
        m > n,
    ),
    Mask(X),
    Mask(X),
)
case(
    "tensors without axes",
    lambda x, s: (
        x + s.double(),
        x.long() * s,
        s * 2,
        x > s.double(),
        torch.where(x > 0, x, s.double()),
    ),
    X,
    (),
)
case(
    "small integers",
    lambda i: (
        i.to(torch.uint8) + 250,
        i.to(torch.int8) * 2,
        i.to(torch.int32) + 1.5,
        i.to(torch.uint8) / 255,
        i.to(torch.int16).sum(),
    ),
    WHOLE,
)

# --- shapes ----------------------------------------------------------------------------------

CUBE = (2, 3, 4)
case("view", lambda x: (x.view(4, 3), x.reshape(-1), aten._unsafe_view(x, [2, 6])))
case("permute", lambda x: (x.permute(2, 0, -2), x.transpose(-1, 0), x.mT), CUBE)
case("expand", lambda x: (x.expand(3, 4), x.expand(2, -1, 4), x[0].expand(2, 3)), (3, 1))
case("repeat", lambda x: (x.repeat(2, 1), x.repeat(2, 2, 3), x.repeat_interleave(2, 1)))
case(
    "squeeze",
    lambda x: (
        x.squeeze(),
        x.squeeze(-1),
        aten.squeeze.dim(x, 1),
        aten.squeeze.dims(x, [0, -1]),
        x[0, 0, 0].squeeze(),
    ),
    (1, 3, 1),
)
case("unsqueeze", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(-2)))
case("flip", lambda x: (x.flip(0), x.flip([-1, 0])))
case("roll", lambda x: (aten.roll(x, [1], [0]), aten.roll(x, [1, -2], [0, 1]), aten.roll(x, [2])))
case("diagonal", lambda x: (x.diagonal(), aten.diagonal(x, 1), aten.diagonal(x, -1, 1, 0)))
case(
    "diagonal_scatter",
    lambda x, y: (aten.diagonal_scatter(x, y), aten.diagonal_scatter(x, y, 1)),
    X,
    (3,),
)
case("select", lambda x: (x[1], x[:, -1], x.select(-1, 2)))
case("slice", lambda x: (x[1:], x[:, :-1], x[::2, 1::2], x[-2:], x[5:], aten.slice(x, 1, -3, 100)))
case("select_scatter", lambda x, y: (aten.select_scatter(x, y, 0, -1),), X, ROW)
case(
    "slice_scatter",
    lambda x, y: (
        aten.slice_scatter(x, y, 0, 1, 3),
        aten.slice_scatter(x, y, 0, -2, 100),
        aten.slice_scatter(x, y.mT[:3], 1, 0, 4, 2),
    ),
    X,
    (2, 4),
)
case(
    "split",
    lambda x: (*x.split(2, -1), *x.chunk(2), *aten.split_with_sizes(x, [1, 3], 1), *x.unbind(0)),
)
case(
    "cat",
    lambda x, y: (
        torch.cat([x, y]),
        torch.cat([x, y], -1),
        torch.stack([x, y], 1),
        torch.hstack([x, y]),
    ),
    X,
    Y,
)
case(
    "cat of mixed dtypes",
    lambda x, i: (torch.cat([x, i]), torch.cat([i, x.new_zeros(0)]), torch.cat([i > 2, i])),
    X,
    WHOLE,
)
case("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 1))))
case(
    "new tensors",
    lambda x: (
        x
        + torch.full((4,), 2.0, dtype=x.dtype)
        + torch.ones_like(x) * torch.zeros(4, dtype=x.dtype)
        + torch.arange(4)
        + torch.arange(0, 2, 0.5, dtype=x.dtype)
        + torch.linspace(0, 1, 4, dtype=x.dtype)
        + torch.eye(3, 4, dtype=x.dtype)
    ),
)
case(
    "new tensors' dtypes",
    lambda x: (
        torch.full((2,), 1),
        torch.full((2,), 1.0),
        torch.full((2,), True),
        torch.arange(3),
        torch.arange(1.0, 3.0),
        torch.full_like(x, 2),
        torch.full_like(x, 2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int32),
    ),
)
case(
    "empty tensors",
    lambda x: (
        torch.empty(4).fill_(2) + torch.empty_like(x).zero_(),
        aten.empty_strided([2, 2], [2, 1]).zero_(),
        aten.empty_permuted([2, 3], [1, 0]).zero_(),
        aten.new_empty_strided(x, [2, 2], [2, 1]).zero_(),
        x[5:].sum(0),
        x[5:].clone(),
    ),
)
case(
    "copies",
    lambda x, y: (
        x.clone(),
        aten.alias(x),
        aten.copy(x.detach(), y.detach()),
        aten.detach(x),
        aten.lift_fresh_copy(x),
    ),
    X,
    ROW,
)
case("as_strided", lambda x: (x.as_strided((2, 2), (4, 1)), x.as_strided((2, 3), (1, 2), 3)))
case("as_strided_scatter", lambda x, y: aten.as_strided_scatter(x, y, (2, 2), (4, 1), 1), X, (2, 2))
case("unfold", lambda x: (x.unfold(1, 2, 1), x.unfold(0, 2, 1), aten.unfold(x, -1, 3, 2)), (3, 7))
case("tril", lambda x: (x.tril(), x.triu(1)))


def _in_place(x, y):
    z = x * 2
    z[0] = 0
    z[:, 1] = y
    z[1:, 2:] += 1
    z.clamp_(max=1.5).mul_(2)
    z[z > 1] = -1.0
    return z


case("in-place writes", _in_place, X, (3,))

# --- reductions ------------------------------------------------------------------------------

case(
    "sum",
    lambda x: (
        aten.sum(x),
        x.sum(1),
        x.sum((0, -1), keepdim=True),
        x.sum(0, dtype=torch.float64),
        x[0, 0, 0].sum(0),
    ),
    CUBE,
)
case(
    "sum of integers",
    lambda i, m: (
        aten.sum(i),
        i.sum(0),
        m.sum(1),
        i.to(torch.uint8).sum(),
        i.prod(0),
        aten.prod(m),
    ),
    WHOLE,
    Mask(X),
)
case(
    "mean",
    lambda x: (
        aten.mean(x),
        x.mean(1),
        x.mean((0, -1), keepdim=True),
        x.mean(0, dtype=torch.float64),
    ),
    CUBE,
)
case("prod", lambda x: (aten.prod(x), x.prod(1), x.prod(-1, keepdim=True)))
case(
    "var",
    lambda x: (
        x.var(),
        x.var(0),
        x.std(1),
        aten.var.correction(x, [0], correction=0, keepdim=True),
        x.var((0, 1)),
    ),
    CUBE,
)
case(
    "var_mean",
    lambda x: (
        *torch.var_mean(x, 0),
        *aten.var_mean.correction(x, [1], correction=0, keepdim=True),
    ),
)
case(
    "vector norms",
    lambda x: (
        x.norm(),
        *(torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, 3, float("inf"), -float("inf"))),
        torch.linalg.vector_norm(x, 2, -1, True),
    ),
)
case(
    "any",
    lambda x: (
        (x > 1).any(),
        (x > 1).any(0),
        (x > 1).any(1, True),
        (x > 1).any((0, 1)),
        aten.any.dims(x, [0, 1]),
    ),
)
case("all", lambda x: ((x > -1).all(), (x > -1).all(0), aten.all(x), aten.all.dim(x, 1, True)))
case("amax", lambda x: (x.amax(1), x.amax(), x.amin((0, 1)), x.amin(-1, keepdim=True)), CUBE)
case("max", lambda x: (x.max(), x.min(), aten.max(x), aten.min(x)))
case(
    "max of ties",
    lambda x: (
        *_with_ties(x).max(1),
        _with_ties(x).amax(0),
        _with_ties(x).max(),
        _with_ties(x).cummax(1).values,
        *_with_ties(x).min(0),
    ),
)
case(
    "max with indices", lambda x: (*x.max(1), *x.min(0), *x.max(-1, keepdim=True), *x[0, 0].max(0))
)
case("argmax", lambda x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True), x.argmin()))
case("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1), x.long().cumsum(1), x.sum().cumsum(0)))
case("cumprod", lambda x: (x.cumprod(0), x.cumprod(-1)))
case("cummax", lambda x: (*x.cummax(0), *x.cummin(1), *x.sum().cummax(0)))
case("logcumsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)))
case("logsumexp", lambda x: (x.logsumexp(1), x.logsumexp((0, 1))))
case("softmax", lambda x: (x.softmax(-1), x.softmax(0), aten._softmax(x, 1, False)))
case("log_softmax", lambda x: (x.log_softmax(-1), x.log_softmax(0)))
case(
    "sort",
    lambda x: (
        *x.sort(),
        *x.sort(0, descending=True),
        *x.sort(stable=True, dim=1),
        *aten.sort(x, 0),
        x.argsort(1),
    ),
)
case("topk", lambda x: (*x.topk(2), *x.topk(2, 0, largest=False), *x.topk(3, 1)))
case("kthvalue", lambda x: (*x.kthvalue(2), *x.kthvalue(1, 0, True)))
case("median", lambda x: (*x.median(1), *x.median(0, True), x.median(), x.quantile(0.3, 1)))
case(
    "searchsorted",
    lambda x, y: (
        torch.searchsorted(y.detach().sort().values, x.detach()),
        torch.searchsorted(y.detach().sort().values, x.detach(), right=True, out_int32=True),
        torch.searchsorted(x.detach().sort(1).values, y.detach().repeat(3, 1)),
        torch.searchsorted(y.detach(), x.detach(), sorter=y.detach().argsort()),
    ),
    X,
    (5,),
)
case(
    "bucketize",
    lambda x: (
        torch.bucketize(x.detach(), torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype)),
        torch.bucketize((x > 0).long(), torch.tensor([0, 1]), right=True),
    ),
)

# --- reading and writing by indices ----------------------------------------------------------

case("gather", lambda x, i: x.gather(1, i), X, Whole(4, (3, 1)))
case(
    "gather of less",
    lambda x, i: (x.gather(1, i), x.gather(0, i.clamp(max=2)), x.gather(-1, i[:, :1])),
    X,
    Whole(4, (2, 3)),
)
case("gather of one row", lambda x, i: x.gather(1, i), X, Whole(4, (1, 1)))
case("take_along_dim", lambda x: x.take_along_dim(x.argsort(1), 1))
case(
    "scatter",
    lambda x, y: (
        x.scatter(1, torch.tensor([[0, 2], [1, 3], [3, 0]]), y[:, :2]),
        x.scatter(0, torch.tensor([[0, 2, 1, 1]]), y[:1]),
    ),
    X,
    Y,
)
case(
    "scatter of one",
    lambda x, y, i: (
        x.scatter(1, i, y),
        x.scatter(1, i, 2.0),
        x.scatter_add(1, i, y),
        x.scatter(1, i[:2], y[:2]),
    ),
    X,
    (3, 1),
    Whole(4, (3, 1)),
)
case(
    "scatter_add",
    lambda x, y, i: (x.scatter_add(1, i, y), x.scatter_add(0, i.clamp(max=2)[:2], y[:2])),
    X,
    Y,
    Whole(4, X),
)
case(
    "scatter without axes",
    lambda x, i: (
        x[0, 0].gather(0, i),
        x[0, 0].scatter(0, i, x[0, 1]),
        x[0, 0].scatter_add(0, i, x[0, 1]),
    ),
    X,
    Whole(1, ()),
)
for kind in ("sum", "prod", "mean", "amax", "amin"):
    case(
        f"scatter_reduce {kind}",
        lambda x, y, i, kind=kind: (
            x.scatter_reduce(1, i, y, kind),
            x.scatter_reduce(1, i, y, kind, include_self=False),
        ),
        X,
        Y,
        Whole(4, X),
    )
case("embedding", lambda w, i: F.embedding(i, w, padding_idx=1), (5, 3), Whole(5, (2, 4)))
case(
    "index_select",
    lambda x: (x.index_select(1, torch.tensor([0, 0, 3])), x.index_select(0, torch.tensor([2]))),
)
case(
    "index",
    lambda x, i: (
        x[torch.arange(3), i],
        x[:, i],
        x[i.clamp(max=2)],
        x[-1 - i.clamp(max=2)],
        x[i[:, None].clamp(max=2), i],
    ),
    X,
    Whole(4, (3,)),
)
case(
    "index in the middle",
    lambda x, i: (x[:, i], x[:, i, :2], x[i[:, None] % 2, :, i]),
    CUBE,
    Whole(3, (2,)),
)
case("index of nearest", lambda x: F.interpolate(x[None, None], scale_factor=2))
case(
    "index_put",
    lambda x, i: (
        aten.index_put(x, [torch.arange(3), i], x[:, 0]),
        aten.index_put(x, [None, i], x[:, :3] * 0, False),
        aten.index_put(x, [i.clamp(max=2)], x, True),
        aten._unsafe_index_put(x, [torch.arange(3), i], x[0, 0]),
    ),
    X,
    Whole(4, (3,)),
)
case(
    "index_put by a mask",
    lambda x, m, y: (
        aten.index_put(x, [m], x.new_tensor(2.0)),
        aten.index_put(x, [m[:, 0]], y.detach()),
        aten.index_put(x, [None, m[0]], x.new_tensor(1.0)),
        aten.index_put(x, [m], x[0, 0].detach(), True),
    ),
    X,
    Mask(X),
    ROW,
)
case(
    "masked_fill",
    lambda x, m: (x.masked_fill(m, -1e9).softmax(-1), x.masked_fill(m, float("-inf"))),
    X,
    Mask(X),
)
case(
    "masked_scatter", lambda x, m, y: aten.masked_scatter(x.detach(), m, y.detach()), X, Mask(X), Y
)
case("index_add", lambda x, i: x.index_add(0, i, x[:2], alpha=2), X, Whole(3, (2,)))
case("take", lambda x: x.take(torch.tensor([0, 7, 7, 11])))
case(
    "put",
    lambda x, y: (aten.put(x, torch.tensor([0, 7]), y), aten.put(x, torch.tensor([0, 0]), y, True)),
    X,
    (2,),
)
case(
    "one_hot",
    lambda x, i: (F.one_hot(i, 4), (F.one_hot(i, num_classes=4) * x).sum(1)),
    X,
    Whole(4, (3,)),
)

# --- layers ----------------------------------------------------------------------------------

case("mm", lambda x, y: (x @ y.T, torch.einsum("ij,kj->ik", x, y), F.linear(x, y)), X, (2, 4))
case("mv", lambda x, y: (aten.mv(x, y), aten.dot(y, y), torch.outer(y, y)), X, ROW)
case("bmm", lambda x, y: (torch.bmm(x, y), torch.einsum("bij,bjk->ik", x, y)), (2, 3, 4), (2, 4, 5))
case("integer products", lambda i: (i @ i.T, aten.mm(i, i.T)), WHOLE)
case(
    "addmm",
    lambda x, y, b: (
        aten.addmm(b, x, y),
        aten.addmm(b, x, y, beta=0.5, alpha=2),
        aten.addmm(b / 0, x, y, beta=0),
    ),
    X,
    (4, 2),
    (2,),
)
case("addmv", lambda x, y, b: aten.addmv(b, x, y, beta=0.5, alpha=2), X, ROW, (3,))
case(
    "baddbmm",
    lambda b, x, y: (
        aten.baddbmm(b, x, y, beta=0.5, alpha=2),
        aten.addbmm(b[0], x, y, beta=0.5, alpha=2),
    ),
    (2, 3, 5),
    (2, 3, 4),
    (2, 4, 5),
)
case("bilinear", lambda x, y, w, b: F.bilinear(x, y, w, b), (5, 3), (5, 4), (2, 3, 4), (2,))
case(
    "layer_norm",
    lambda x, w, b: (F.layer_norm(x, (4,), w, b), F.layer_norm(x, (3, 4)), F.rms_norm(x, (4,), w)),
    CUBE,
    ROW,
    ROW,
)
case(
    "group_norm",
    lambda x, w, b: (F.group_norm(x, 2, w, b), F.group_norm(x.flatten(1), 2)),
    (2, 4, 3),
    ROW,
    ROW,
)
case(
    "batch_norm",
    lambda x, w, b, m, v: (
        F.batch_norm(x, m.detach(), v.detach(), w, b),
        F.batch_norm(x, None, None, w, b, True),
    ),
    (6, 4, 3),
    ROW,
    ROW,
    ROW,
    Positive(ROW),
)
for power in (0.0, 1.0, 2.0, 3.0, float("inf")):
    case(f"cdist {power}", lambda x, y, p=power: torch.cdist(x, y, p), X, (2, 4))
case("cdist of itself", lambda x: torch.cdist(x, x.detach()))
case(
    "cholesky",
    lambda x: (
        torch.linalg.cholesky(x @ x.T + torch.eye(3, dtype=x.dtype)),
        torch.linalg.cholesky(x @ x.T + torch.eye(3, dtype=x.dtype), upper=True),
    ),
)
case(
    "solve_triangular",
    lambda a, b: (
        torch.linalg.solve_triangular(a.tril() + 2 * torch.eye(3, dtype=a.dtype), b, upper=False),
        torch.linalg.solve_triangular(
            a.triu() + 2 * torch.eye(3, dtype=a.dtype), b.mT, upper=True, left=False
        ),
        torch.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    ),
    (3, 3),
    (2, 3, 4),
)
case("inv", lambda x: torch.linalg.inv(x + 3 * torch.eye(3, dtype=x.dtype)), (3, 3))

# --- pictures --------------------------------------------------------------------------------


def convolution(name, space, *, inputs=2, outputs=4, groups=1, size, transposed=False, **settings):
    n = len(space)
    function = getattr(F, f"conv{'_transpose' * transposed}{n}d")
    weight = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    case(
        name,
        lambda x, w, b: function(x, w, b, groups=groups, **settings),
        (3, inputs, *space),
        (*weight, *size),
        (outputs,),
    )


convolution("conv2d", (7, 6), size=(3, 3))
convolution(
    "conv2d, all settings", (9, 11), size=(3, 2), stride=(2, 3), padding=(2, 1), dilation=(2, 3)
)
convolution("conv2d, stride that leaves a rest", (10, 9), size=(4, 3), stride=3)
convolution("conv2d, stride beyond the kernel", (9, 9), size=(2, 2), stride=(3, 4))
convolution("conv2d, groups", (7, 6), size=(3, 3), inputs=4, groups=2, padding=1, stride=2)
convolution("conv2d, depthwise", (5, 5), size=(3, 3), inputs=4, groups=4)
convolution("conv2d, padding beyond the kernel", (4, 5), size=(1, 2), padding=3)
convolution("conv1d", (9,), size=(3,), stride=2, padding=1, dilation=2)
convolution("conv3d", (4, 5, 4), size=(2, 3, 2), stride=(1, 2, 1))
convolution("conv_transpose1d", (5,), size=(3,), transposed=True, stride=2)
convolution(
    "conv_transpose2d",
    (5, 4),
    size=(3, 4),
    transposed=True,
    stride=(3, 2),
    padding=1,
    output_padding=(2, 1),
    dilation=(2, 1),
)
convolution(
    "conv_transpose2d, groups", (5, 4), size=(3, 3), inputs=4, transposed=True, groups=2, stride=2
)
case("conv2d of bare input", lambda x, w: F.conv2d(x, w), (2, 5, 5), (3, 2, 2, 2))

PICTURE = (2, 3, 7, 6)
case(
    "max_pool2d",
    lambda x: (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, 3, 2, 1),
        F.max_pool2d(x, (2, 3), (1, 2), (0, 1), (2, 1)),
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.max_pool2d(x[0], 2),
        *F.max_pool2d_with_indices(x, 3, 2),
    ),
    PICTURE,
)
case("max_pool1d", lambda x: F.max_pool1d(x, 2), (2, 3, 7))
case("max_pool2d of ties", lambda x: F.max_pool2d(_with_ties(x), 3, 2, 1), PICTURE)
case(
    "avg_pool2d",
    lambda x: (
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 3, 2, 1, True, False),
        F.avg_pool2d(x, 3, 2, 1, True, True),
        F.avg_pool2d(x, (2, 3), divisor_override=5),
    ),
    PICTURE,
)
case("avg_pool1d", lambda x: F.avg_pool1d(x, 2), (2, 3, 7))
case(
    "adaptive_avg_pool2d",
    lambda x: (
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, (3, 4)),
        F.adaptive_avg_pool2d(x[0], 2),
    ),
    PICTURE,
)
case(
    "upsample nearest",
    lambda x: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(10, 4)),
        F.interpolate(x, scale_factor=1.5),
    ),
    PICTURE,
)
for corners in (False, True):
    case(
        f"upsample bilinear {corners}",
        lambda x, c=corners: (
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=c),
            F.interpolate(x, size=(5, 9), mode="bilinear", align_corners=c),
        ),
        PICTURE,
    )
case(
    "pad by repetition",
    lambda x: (
        F.pad(x, (1, 2, 0, 3), "replicate"),
        F.pad(x, (2, 1, 1, 0), "reflect"),
        F.pad(x, (1, 2, 2, 1), "circular"),
        F.pad(x[0], (2, 1), "replicate"),
    ),
    PICTURE,
)
