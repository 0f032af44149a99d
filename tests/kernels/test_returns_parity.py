"""Every estimator equals its loop twin, on every library, dtype, layout and situation."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.backends import BACKENDS, DTYPES, HALVES, JAX, NUMPY, TORCH
from support.compare import assert_all_close, assert_close
from support.situations import padded, rollout, situations
from support.strategies import ALL_LAYOUTS, LAYOUTS, Layout, rollouts

import loopless as ll
from loopless.verify.contracts import ESTIMATORS

SITUATIONS = situations()
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
ENDING = {label: e for label, e in ESTIMATORS.items() if e.takes_valid}
with_ends = pytest.mark.parametrize("estimator", ENDING.values(), ids=ENDING)
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
on_the_host = pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
# The recipes that between them use every switch of the engines: none, `ahead`, `reads_next`, and
# windows instead of a scan. What only the engines decide is tested on these.
ENGINES = {
    label: ESTIMATORS[label] for label in ("gae", "upgo", "token_gae, skip", "n_step_returns")
}
every_engine = pytest.mark.parametrize("estimator", ENGINES.values(), ids=ENGINES)


def run(estimator, backend, data, dtype="float64", **overrides):
    out = estimator.call(estimator.kernel, backend.arguments(data, dtype), **overrides)
    return [backend.numpy(x) for x in out]


def rounded(data, dtype):
    """The data as `dtype` stores it, in float64: what the twin must be given for comparison."""
    return {
        name: x.astype(dtype).astype(np.float64)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for name, x in data.items()
    }


@every_estimator
@on_the_host
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@given(st.data())
def test_equals_its_loop_twin(estimator, backend, dtype, source):
    data = source.draw(rollouts(LAYOUTS[dtype]))
    expected = estimator.call(estimator.twin, rounded(data, dtype))
    assert_all_close(run(estimator, backend, data, dtype), expected, dtype)


@pytest.mark.slow
@on_the_host
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=rollouts(ALL_LAYOUTS))
def test_every_specialization_of_one_recipe_equals_its_loop_twin(backend, dtype, data):
    gae = ESTIMATORS["gae"]
    expected = gae.call(gae.twin, rounded(data, dtype))
    assert_all_close(run(gae, backend, data, dtype), expected, dtype)


@functools.cache
def jax_program(label):
    """Return one program for all data of one structure: compiling takes longer than all else."""
    estimator = ESTIMATORS[label]
    return jax.jit(lambda arguments: estimator.call(estimator.kernel, arguments))


@pytest.mark.slow
@every_estimator
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=8)
@given(data=rollouts((Layout(((5, 4),), padding=False, arrays=False),)))
def test_equals_its_loop_twin_under_jit(estimator, dtype, data):
    got = jax_program(estimator.label)(JAX.arguments(data, dtype))
    expected = estimator.call(estimator.twin, rounded(data, dtype))
    assert_all_close([JAX.numpy(x) for x in got], expected, dtype)


@pytest.mark.slow
@every_estimator
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=8)
@given(data=rollouts(tuple(layout._replace(shapes=((5, 4),)) for layout in ALL_LAYOUTS)))
def test_equals_its_loop_twin_under_jit_with_padding_and_arrays_of_numbers(estimator, dtype, data):
    data.setdefault("valid", np.ones((5, 4), bool))
    for name in ("gamma", "lambda_"):
        data[name] = np.array(np.broadcast_to(data[name], (5, 4)))
    got = jax_program(estimator.label)(JAX.arguments(data, dtype))
    expected = estimator.call(estimator.twin, rounded(data, dtype))
    assert_all_close([JAX.numpy(x) for x in got], expected, dtype)


@every_estimator
@every_backend
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_is_right_in_each_named_situation(estimator, backend, situation):
    expected = estimator.call(estimator.twin, situation.data)
    assert_all_close(run(estimator, backend, situation.data), expected)


@every_engine
@every_backend
@pytest.mark.parametrize("dtype", DTYPES)
def test_gives_back_the_callers_library_and_dtype(estimator, backend, dtype):
    data = backend.arguments(rollout((5, 4), 0), dtype)
    for out in estimator.call(estimator.kernel, data):
        assert backend.owns(out)
        assert backend.dtype(out) == dtype
        assert tuple(out.shape) == (5, 4)


@every_engine
@pytest.mark.parametrize(
    ("backend", "half"), [(b, h) for b in BACKENDS for h in HALVES[b.name]], ids=str
)
def test_case_12_halves_accumulate_in_float32(estimator, backend, half):
    data = rollout((200, 4), 1, terminated=0.02, truncated=0.02, gamma=0.99, lambda_=0.95)
    # half of a unit in the last place of the result, and the float32 bound on top
    stored = {
        k: backend.numpy(backend.array(x, half))
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for k, x in data.items()
    }
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[half]
    expected = estimator.call(estimator.twin, stored)
    out = estimator.call(estimator.kernel, backend.arguments(data, half))
    for x, y in zip(out, expected, strict=True):
        assert backend.dtype(x) == half
        bound = 0.5 * ulp * np.maximum(np.abs(y), 2.0**-14) + 1e-5 * max(1.0, np.abs(y).max())
        assert (np.abs(backend.numpy(x) - y) <= bound).all()


@every_engine
@every_backend
@pytest.mark.parametrize(
    ("shape", "time_axis"),
    [((4, 3), 1), ((4, 3), -1), ((4, 3), -2), ((2, 5, 3), 1), ((2, 3, 5), -1), ((5, 2, 1), 0)],
)
def test_case_15_any_time_axis_equals_time_first(estimator, backend, shape, time_axis):
    steps = shape[time_axis]
    others = [n for k, n in enumerate(shape) if k != time_axis % len(shape)]
    first = rollout((steps, *others), 3)
    moved = {
        k: np.ascontiguousarray(np.moveaxis(x, 0, time_axis)) if isinstance(x, np.ndarray) else x
        for k, x in first.items()
    }
    expected = estimator.call(estimator.twin, first)
    got = run(estimator, backend, moved | {"time_axis": time_axis})
    assert_all_close([np.moveaxis(x, time_axis, 0) for x in got], expected)


@every_engine
@every_backend
def test_case_15_a_trailing_feature_axis_is_batch(estimator, backend):
    data = rollout((6, 2, 3, 1), 4)
    assert_all_close(run(estimator, backend, data), estimator.call(estimator.twin, data))


@with_ends
@every_backend
@settings(max_examples=10)
@given(data=rollouts((Layout(((8, 3),), padding=False, arrays=False),)))
def test_case_05_equals_its_pieces_split_at_episode_ends(estimator, backend, data):
    steps = len(data["rewards"])
    cut = steps // 2
    data["truncated"][cut - 1] = True
    whole = run(estimator, backend, data)
    head = {k: x[:cut] if isinstance(x, np.ndarray) else x for k, x in data.items()}
    tail = {k: x[cut:] if isinstance(x, np.ndarray) else x for k, x in data.items()}
    pieces = zip(run(estimator, backend, head), run(estimator, backend, tail), strict=True)
    assert_all_close(whole, [np.concatenate(pair) for pair in pieces])


@every_engine
@pytest.mark.parametrize("kind", ["strided", "reversed", "transposed", "expanded", "read-only"])
@on_the_host
def test_case_14_strange_memory_layouts_change_nothing(estimator, backend, kind):
    data = rollout((6, 4), 5)
    if kind == "expanded":
        data = {
            k: np.repeat(x[:, :1], 4, axis=1) if isinstance(x, np.ndarray) else x
            for k, x in data.items()
        }
    expected = estimator.call(estimator.twin, data)
    arguments = {k: strange(backend.array(x), kind) for k, x in data.items()}
    copies = {k: backend.numpy(x).copy() for k, x in arguments.items() if backend.owns(x)}
    out = estimator.call(estimator.kernel, arguments)
    assert_all_close([backend.numpy(x) for x in out], expected)
    for name, before in copies.items():
        np.testing.assert_array_equal(backend.numpy(arguments[name]), before)


def strange(x, kind):
    if not hasattr(x, "shape"):
        return x
    if kind == "strided":
        wide = x.repeat(2, 1) if isinstance(x, np.ndarray) else x.repeat_interleave(2, 1)
        return wide[:, ::2]
    if kind == "reversed":
        if isinstance(x, np.ndarray):
            return x[::-1].copy()[::-1]
        return x.flip(0).flip(0)[:]
    if kind == "transposed":
        return x.T.copy().T if isinstance(x, np.ndarray) else x.T.contiguous().T
    if kind == "expanded":
        if isinstance(x, np.ndarray):
            return np.broadcast_to(x[:, :1], x.shape)
        return x[:, :1].expand(x.shape)
    if isinstance(x, np.ndarray):
        x.flags.writeable = False
    return x


@every_engine
@every_backend
def test_case_08_empty_batch_and_empty_time_give_empty_arrays(estimator, backend):
    for shape in ((0, 3), (4, 0), (0,)):
        data = rollout((max(shape[0], 1), *shape[1:]), 0)
        data = {k: x[: shape[0]] if isinstance(x, np.ndarray) else x for k, x in data.items()}
        for out in estimator.call(estimator.kernel, backend.arguments(data)):
            assert tuple(out.shape) == shape


@with_ends
@every_backend
def test_case_10_stale_numbers_in_padding_change_nothing(estimator, backend):
    data = rollout((10, 3), 6)
    valid = np.arange(10)[:, None] < np.array([0, 1, 5])
    clean = run(estimator, backend, padded(data, valid, 0.0))
    stale = run(estimator, backend, padded(data, valid, 12345.678))
    for x, y in zip(clean, stale, strict=True):
        np.testing.assert_array_equal(x, y)


@every_engine
@every_backend
def test_case_28_deterministic_and_columns_do_not_feel_each_other(estimator, backend):
    data = rollout((20, 13), 7)
    order = np.random.default_rng(0).permutation(13)
    whole = run(estimator, backend, data)
    again = run(estimator, backend, data)
    shuffled = run(
        estimator,
        backend,
        {k: x[:, order] if isinstance(x, np.ndarray) else x for k, x in data.items()},
    )
    fewer = run(
        estimator,
        backend,
        {k: x[:, :8] if isinstance(x, np.ndarray) else x for k, x in data.items()},
    )
    # XLA rounds multiply-adds one way in a loop's vector body and another in its remainder, so
    # that under jit a column's last digit depends on how many stand beside it.
    same = assert_close if backend is JAX else np.testing.assert_array_equal
    for x, y, z, w in zip(whole, again, shuffled, fewer, strict=True):
        np.testing.assert_array_equal(x, y)
        same(x[:, order], z)
        same(x[:, :8], w)


@every_backend
@pytest.mark.parametrize("decay", [0.9, 0.9405, 0.999])
def test_case_13_float32_stays_accurate_over_65536_steps(backend, decay):
    data = rollout((65_536, 1), 8, terminated=0.0, truncated=0.0, gamma=1.0, lambda_=decay)
    arguments = backend.arguments(data, "float32")
    advantages, _ = ESTIMATORS["gae"].call(ll.gae, arguments)
    exact, _ = ESTIMATORS["gae"].call(ll.gae, rounded(data, "float32"))
    delta = data["rewards"] + data["next_values"] - data["values"]
    bound = 50 * np.finfo(np.float32).eps * np.abs(delta).max() / (1 - decay)
    assert np.abs(backend.numpy(advantages) - exact).max() <= bound


@every_backend
@pytest.mark.parametrize("size", ["mixed", "numbers of zero axes"])
def test_case_21_scalars_of_every_kind_agree(backend, size):
    data = rollout((5, 3), 9)
    arguments = backend.arguments(data)
    expected = [backend.numpy(x) for x in ESTIMATORS["gae"].call(ll.gae, arguments)]
    if size == "mixed":
        arguments["gamma"] = backend.array(np.full((5, 3), 0.9))
        arguments["lambda_"] = backend.array(np.full((1, 1), 0.8))
    else:
        arguments["gamma"] = backend.array(np.array(0.9))
        arguments["lambda_"] = backend.array(np.array(0.8))
    got = [backend.numpy(x) for x in ESTIMATORS["gae"].call(ll.gae, arguments)]
    assert_all_close(got, expected)


@every_backend
def test_case_25_mixed_precision_is_promoted_and_integer_flags_are_taken(backend):
    data = rollout((5, 3), 10)
    arguments = backend.arguments(data, "float32")
    arguments["rewards"] = backend.array(data["rewards"], "float64")
    arguments["terminated"] = backend.array(data["terminated"].astype(np.uint8))
    arguments["truncated"] = backend.array(data["truncated"].astype(np.int64))
    advantages, _ = ESTIMATORS["gae"].call(ll.gae, arguments)
    assert backend.dtype(advantages) == "float64"
    expected, _ = ESTIMATORS["gae"].call(ESTIMATORS["gae"].twin, rounded(data, "float32"))
    assert_close(backend.numpy(advantages), expected, "float32")
