"""`lower`, `missing` and `flatten`: what they promise beside the numbers of single operators."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax.extend.core import jaxprs_in_params
from scipy.special import gammainc, gammaln
from support.lowered import FAST_COMPILE, check_equal, run
from torch import nn

from loopless.fused import lowering
from loopless.fused.lowering import is_random, lower, missing
from loopless.fused.operators import OPERATORS, RANDOM
from loopless.fused.tracing import flatten
from loopless.nets import convolution

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def strict_x64():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 3.0, 3.0]])


def evaluate(function, *tensors):
    """Return what the lowered graph of a function of tensors makes of these."""
    return run(flatten(function, *tensors), tensors)


# --- graphs ----------------------------------------------------------------------------------


def test_none_stays_none_and_results_are_flat():
    def loss(x):
        used, unused = x.clone().requires_grad_(), x.clone().requires_grad_()
        value = (used * 2).sum()
        gradients = torch.autograd.grad(value, [used, unused], allow_unused=True)
        return {"value": value, "gradients": gradients}

    value, used, unused = evaluate(loss, X)
    assert (float(value), unused) == (17.0, None)
    np.testing.assert_array_equal(used, np.full((2, 3), 2, np.float32))


def test_an_input_may_be_a_result():
    (result,) = evaluate(lambda x: x, X)
    np.testing.assert_array_equal(result, X)


def test_constants_are_copied_once():
    constant = torch.tensor([1.0, 2.0, 3.0])
    function = lower(flatten(lambda x: x + constant, X))
    before = function(X.numpy())[0]
    constant.zero_()
    np.testing.assert_array_equal(function(X.numpy())[0], before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_constants_keep_their_dtype(dtype):
    constant = torch.tensor([0, 1, 1]).to(dtype)
    (result,) = evaluate(lambda x: constant.clone(), X)
    assert result.dtype.name == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(result.astype(np.float32), constant.float())


def test_large_integers_are_exact():
    (result,) = evaluate(lambda i: i * 3 + 1, torch.tensor([2**40, -(2**52)]))
    assert result.tolist() == [3 * 2**40 + 1, -3 * 2**52 + 1]


def test_nodes_that_nothing_needs_are_skipped():
    def function(x):
        (x > 0).nonzero()
        return x + 1

    graph = flatten(function, X)
    assert "aten.nonzero.default" in {str(node.target) for node in graph.graph.nodes}
    assert missing(graph) == []
    np.testing.assert_array_equal(lower(graph)(X.numpy())[0], X + 1)


def test_the_wrong_number_of_arrays_is_refused():
    with pytest.raises(TypeError, match="takes 1 arrays; received 2"):
        lower(flatten(lambda x: x + 1, X))(X.numpy(), X.numpy())


# --- what is missing, and where --------------------------------------------------------------


class Histogram(nn.Module):
    def forward(self, x):
        x = x * 2
        return torch.histc(x, 3)


def test_a_missing_operator_is_named_with_the_users_line():
    graph = flatten(Histogram(), X)
    line = Histogram.forward.__code__.co_firstlineno + 2
    (problem,) = missing(graph)
    assert problem.operator == "aten.histc.default"
    assert problem.where == f"test_lowering.py:{line}, in forward"
    with pytest.raises(
        ValueError, match=r"aten\.histc\.default \(test_lowering\.py:\d+, in forward\)"
    ):
        lower(graph)


def test_an_operator_of_a_gradient_has_the_line_of_what_it_is_the_gradient_of():
    def loss(x):
        x = x.clone().requires_grad_()
        y = F.adaptive_max_pool1d(x[None], 2)
        return torch.autograd.grad((y * 2).sum(), x)[0]

    line = loss.__code__.co_firstlineno + 2
    places = {problem.where for problem in missing(flatten(loss, X))}
    assert places == {f"test_lowering.py:{line}, in loss"}


@pytest.mark.parametrize(
    ("function", "trouble"),
    [
        (lambda x: x[x > 0], r"aten\.index\.Tensor by a mask"),
        (lambda x: torch.ops.aten.index_put(x, [x > 9], x[0, :0]), r"index_put\.default by a mask"),
        (lambda x: x.t().as_strided((2, 2), (1, 1)), r"as_strided\.default of a tensor"),
        (lambda x: (x > 0).nonzero(), r"aten\.nonzero\.default"),
    ],
)
def test_what_no_compiled_program_can_do_is_refused(function, trouble):
    with pytest.raises(ValueError, match=trouble):
        lower(flatten(function, X))


# --- what PyTorch's state is while the user's code runs ---------------------------------------


def state():
    return torch.backends.mkldnn.enabled, torch.distributions.Distribution._validate_args


@pytest.mark.parametrize("fails", [False, True])
def test_pytorchs_settings_are_restored(fails):
    before, inside = state(), []

    def function(x):
        inside.append(state())
        if fails:
            raise ZeroDivisionError
        return x

    if fails:
        with pytest.raises(ZeroDivisionError):
            flatten(function, X)
    else:
        flatten(function, X)
    assert inside[0] == (False, False)
    assert state() == before


def test_running_statistics_of_batch_normalization_move():
    x = X + torch.tensor([0.0, 0.0, 1.0]) * X[:, :1]
    layer = nn.BatchNorm1d(3)
    parameters = dict(layer.named_parameters())

    def function(x, mean, variance, count):
        buffers = {"running_mean": mean.clone(), "running_var": variance.clone()}
        buffers["num_batches_tracked"] = count.clone()
        result = torch.func.functional_call(layer, {**parameters, **buffers}, (x,))
        return result, *buffers.values()

    results = evaluate(function, x, *(buffer.clone() for buffer in layer.buffers()))
    expected = [layer(x).detach(), *layer.buffers()]
    check_equal(results, expected)


# --- mutants ---------------------------------------------------------------------------------


def gradient_of(function):
    def call(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return call


def agrees(function) -> bool:
    (result,) = evaluate(function, X)
    return np.array_equal(result, function(X))


def full_without_a_dtype(shape, value, **_):
    return jnp.full(tuple(shape), value)


def max_of_the_last_of_equals(x, axis, keepdim=False):
    last = x.shape[axis] - 1 - jnp.argmax(jnp.flip(x, axis), axis, keepdims=keepdim)
    return jnp.max(x, axis, keepdims=keepdim), last


@pytest.mark.parametrize(
    ("name", "mutant", "function"),
    [
        (
            "aten.full.default",
            full_without_a_dtype,
            gradient_of(lambda x: x.gather(1, torch.tensor([[0], [2]])) * 0.5),
        ),
        ("aten.max.dim", max_of_the_last_of_equals, gradient_of(lambda x: x.max(1).values)),
    ],
)
def test_mutants_of_the_table_are_noticed(name, mutant, function, monkeypatch):
    assert agrees(function)
    monkeypatch.setitem(OPERATORS, name, mutant)
    assert not agrees(function)


# --- values at the edges ---------------------------------------------------------------------

SPECIAL = torch.tensor(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -3.5], dtype=torch.float64
)
UNARY = (
    "abs ceil cos erf exp expm1 floor isnan isinf log log1p neg reciprocal relu round rsqrt "
    "sigmoid sign sin sqrt square tanh trunc logical_not atan"
)
ACTIVATIONS = "gelu hardtanh elu leaky_relu softplus silu"
BINARY = (
    "add sub mul div maximum minimum fmod remainder pow atan2 eq ne lt le gt ge floor_divide hypot"
)
OTHERS = {
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp low": lambda x: x.clamp(min=0.0),
    "powers": lambda x: torch.stack([x**p for p in (0, 0.5, 1, 2, 3, -0.5, -1, -2, 1.5)]),
    "max": lambda x: torch.stack(
        [x.max(), x.min(), x.amax(), x[1:].max(), x[1:].argmin().double()]
    ),
    "max with indices": lambda x: x.max(0).indices,
    "sort": lambda x: torch.stack([*x.sort(stable=True), *x.sort(descending=True, stable=True)]),
    "topk": lambda x: torch.stack([*x.topk(2), *x.topk(2, largest=False)]),
    "softmax": lambda x: torch.stack(
        [x[3:].softmax(0), x[2:].softmax(0)[1:], x[3:].log_softmax(0)]
    ),
    "cummax": lambda x: torch.stack([*x.flip(0).cummax(0), *x.cummin(0)]),
    "median": lambda x: torch.stack([x.median(), x[1:].median(), x.median(0).indices.double()]),
    "nansum": lambda x: torch.stack([x.nansum(), x.nan_to_num(1, 2, 3).sum()]),
    "logical": lambda x: torch.stack([x.logical_and(x), x.logical_or(x), x.logical_xor(x)]),
    "where": lambda x: torch.where(x > 0, x, 0 * x),
    "logsumexp": lambda x: torch.stack(
        [x[3:].logsumexp(0), x[2:3].logsumexp(0), x[1:].logsumexp(0)]
    ),
}
EDGES = {
    **{name: lambda x, name=name: getattr(torch, name)(x) for name in UNARY.split()},
    **{name: lambda x, name=name: getattr(F, name)(x) for name in ACTIVATIONS.split()},
    **{name: lambda x, name=name: getattr(torch, name)(x[:, None], x) for name in BINARY.split()},
    **OTHERS,
}


@pytest.fixture(scope="module")
def at_the_edges():
    """Return what each function makes of special values, from one compiled program."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        functions = {name: lower(flatten(f, SPECIAL)) for name, f in EDGES.items()}
        program = jax.jit(lambda x: {name: f(x)[0] for name, f in functions.items()})
        return program.lower(SPECIAL.numpy()).compile(FAST_COMPILE)(SPECIAL.numpy())


@pytest.mark.parametrize("name", EDGES)
def test_special_values_are_treated_as_pytorch_treats_them(name, at_the_edges):
    expected = EDGES[name](SPECIAL).numpy()
    np.testing.assert_allclose(at_the_edges[name], expected, rtol=1e-12, atol=1e-12)


def test_reads_from_outside_are_not_numbers():
    """PyTorch raises; a compiled program must at least not go on with some other element."""
    function = lower(
        flatten(lambda x, i: (x.gather(1, i), x[:, i[0]]), X, torch.tensor([[0], [1]]))
    )
    gathered, indexed = function(X.numpy(), np.array([[3], [1]]))
    assert np.isnan(gathered).tolist() == [[True], [False]]
    assert np.isnan(indexed).all()


@pytest.mark.parametrize(("dtype", "precision"), [(torch.bfloat16, 2**-7), (torch.float16, 2**-10)])
def test_half_types(dtype, precision):
    def loss(x, w):
        w = w.clone().requires_grad_()
        y = F.layer_norm(torch.tanh(x @ w), (3,)).softmax(-1)
        value = (y * torch.arange(3)).sum()
        return value, torch.autograd.grad(value, w)[0]

    tensors = [X.to(dtype), torch.linspace(-0.5, 0.7, 9).view(3, 3).to(dtype)]
    arrays = [lowering._to_numpy(tensor) for tensor in tensors]
    results = run(flatten(loss, *tensors), arrays)
    exact = loss(*(tensor.double() for tensor in tensors))
    for result, wanted in zip(results, exact, strict=True):
        assert result.dtype == arrays[0].dtype
        np.testing.assert_allclose(
            result.astype(np.float64), wanted.detach(), rtol=4 * precision, atol=4 * precision
        )


# --- convolutions ----------------------------------------------------------------------------


def convolution_loss(x, w, b):
    inputs = [part.clone().requires_grad_() for part in (x, w, b)]
    value = F.conv2d(*inputs, stride=2, padding=1).square().sum()
    return value, *torch.autograd.grad(value, inputs)


def convolutions_of(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated":
            yield equation.params["dimension_numbers"]
        for inner in jaxprs_in_params(equation.params):
            yield from convolutions_of(inner)


CANONICAL = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


@pytest.mark.parametrize("large", [False, True])
def test_convolutions_and_gradients_have_the_labels_that_are_fast_in_a_loop(large, monkeypatch):
    monkeypatch.setattr(convolution, "PART_BYTES", 1 << 10 if large else 1 << 40)
    draws = torch.Generator().manual_seed(0)
    shapes = (64, 2, 7, 6), (3, 2, 3, 3), (3,)
    tensors = [torch.randn(shape, generator=draws, dtype=torch.float64) for shape in shapes]
    function = lower(flatten(convolution_loss, *tensors))
    arrays = [tensor.numpy() for tensor in tensors]
    labels = list(convolutions_of(jax.make_jaxpr(function)(*arrays).jaxpr))
    assert len(labels) == 3 + large  # forward, both gradients; the first part stands on its own
    assert {tuple(map(tuple, part)) for part in labels} == {CANONICAL}
    check_equal(run(flatten(convolution_loss, *tensors), arrays), convolution_loss(*tensors))


# --- randomness ------------------------------------------------------------------------------

MANY = torch.full((20_000,), 0.3)
NORMAL = torch.distributions.Normal
LAWS = {  # name: function of MANY, mean, variance
    "rand": (lambda x: torch.rand(20_000), 1 / 2, 1 / 12),
    "rand_like": (torch.rand_like, 1 / 2, 1 / 12),
    "randn": (lambda x: torch.randn(20_000), 0, 1),
    "randn_like": (torch.randn_like, 0, 1),
    "normal": (lambda x: torch.normal(x, 2.0), 0.3, 4),
    "normal, two tensors": (lambda x: torch.normal(x, x), 0.3, 0.09),
    "normal, deviations": (lambda x: torch.normal(1.0, x), 1, 0.09),
    "normal_": (lambda x: torch.empty(20_000).normal_(1, 2), 1, 4),
    "uniform_": (lambda x: torch.empty(20_000).uniform_(-1, 3), 1, 16 / 12),
    "exponential_": (lambda x: torch.empty(20_000).exponential_(2), 1 / 2, 1 / 4),
    "bernoulli": (torch.bernoulli, 0.3, 0.21),
    "bernoulli_": (lambda x: torch.empty(20_000).bernoulli_(0.3), 0.3, 0.21),
    "dropout": (lambda x: F.dropout(x / 0.3, 0.25), 1, 1 / 3),
    "native_dropout": (lambda x: torch.native_dropout(x / 0.3, 0.25, True)[0], 1, 1 / 3),
    "randint": (lambda x: torch.randint(1, 4, (20_000,)), 2, 2 / 3),
    "randint, bound": (lambda x: torch.randint(3, (20_000,)), 1, 2 / 3),
    "randint_like": (lambda x: torch.randint_like(x, 3), 1, 2 / 3),
    "randint_like, low": (lambda x: torch.randint_like(x, 1, 4), 2, 2 / 3),
    "randperm": (lambda x: torch.randperm(20_000), 9999.5, (20_000**2 - 1) / 12),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([1.0, 2.0, 1.0]), 20_000, replacement=True),
        1,
        1 / 2,
    ),
    "multinomial without replacement": (
        lambda x: torch.multinomial(torch.tensor([1.0, 2.0, 1.0]).expand(10_000, 3), 2)[:, 0],
        1,
        1 / 2,
    ),
    "gamma": (lambda x: torch.distributions.Gamma(x * 10, 2.0).sample(), 3 / 2, 3 / 4),
    "poisson": (lambda x: torch.poisson(x * 10), 3, 3),
    "rsample": (lambda x: NORMAL(x, 2.0).rsample(), 0.3, 4),
    "categorical": (
        lambda x: torch.distributions.Categorical(torch.tensor([1.0, 2.0, 1.0])).sample((20_000,)),
        1,
        1 / 2,
    ),
}


@functools.cache
def graph_of_law(name: str):
    return flatten(LAWS[name][0], MANY)


@pytest.mark.parametrize("name", LAWS)
def test_random_operators_draw_by_pytorchs_law(name):
    function, mean, variance = LAWS[name]
    graph = graph_of_law(name)
    assert any(is_random(node) for node in graph.graph.nodes)
    (draws,) = run(graph, [MANY], key=0)
    assert draws.dtype == np.asarray(function(MANY)).dtype
    draws = np.asarray(draws, np.float64)
    # The fourth moments of these laws are at most 9 times the squared variance.
    assert abs(draws.mean() - mean) < 5 * np.sqrt(variance / draws.size)
    assert abs(draws.var() - variance) < 5 * variance * np.sqrt(8 / draws.size)


def test_every_random_operator_is_tried():
    graphs = [graph_of_law(name) for name in LAWS]
    tried = {str(n.target) for graph in graphs for n in graph.graph.nodes if is_random(n)}
    assert tried == set(RANDOM)


def test_draws_follow_the_key_and_differ_from_each_other():
    function = lower(flatten(lambda x: (torch.rand(5), torch.rand(5)), X), random=True)
    first, second = function(X.numpy(), key=jax.random.key(1))
    again, _ = function(X.numpy(), key=jax.random.key(1))
    other, _ = function(X.numpy(), key=jax.random.key(2))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, np.concatenate([second, other])).any()


def test_randomness_is_refused_unless_asked_for():
    graph = flatten(lambda x: x + torch.randn_like(x), X)
    assert [str(node.target) for node in graph.graph.nodes if is_random(node)] == [
        "aten.randn_like.default"
    ]
    with pytest.raises(
        ValueError, match=r"randn_like.* \(test_lowering.py:\d+, in <lambda>\) draws"
    ):
        lower(graph)
    with pytest.raises(TypeError, match="needs key"):
        lower(graph, random=True)(X.numpy())


def test_the_gradient_of_gamma_draws_is_that_of_their_quantiles():
    shape, draws = torch.tensor([0.3, 1.0, 2.5, 7.0]).double(), torch.tensor([0.2, 1.5, 2.0, 6.0])
    (result,) = evaluate(torch.ops.aten._standard_gamma_grad.default, shape, draws.double())
    a, x, step = shape.numpy(), draws.double().numpy(), 1e-5
    density = np.exp((a - 1) * np.log(x) - x - gammaln(a))
    slope = (gammainc(a + step, x) - gammainc(a - step, x)) / (2 * step)
    np.testing.assert_allclose(result, -slope / density, rtol=1e-7)
