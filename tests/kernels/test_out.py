"""`gae` writes to arrays of the caller, and refuses whatever would not come out right."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import NUMPY, TORCH
from support.compare import assert_all_close
from support.situations import rollout

import loopless as ll
from loopless import reference

NAMES = ("rewards", "values", "next_values", "terminated", "truncated")
OPTIONS = {"gamma": 0.9, "lambda_": 0.8}
on_the_host = pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)


def case(backend, shape=(6, 5), dtype="float64"):
    data = rollout(shape, 0)
    data["valid"] = np.random.default_rng(1).random(shape) < 0.8
    return [backend.arguments(data, dtype)[name] for name in (*NAMES, "valid")]


def room(backend, count, shape=(6, 5), dtype="float64"):
    return tuple(backend.arguments({"x": np.full(shape, -7.0)}, dtype)["x"] for _ in range(count))


@on_the_host
@pytest.mark.parametrize("td_errors", [False, True])
@pytest.mark.parametrize("shape", [(6, 5), (6, 1), (5,), (2, 3, 4), (0, 3)], ids=str)
@pytest.mark.parametrize("time_axis", [0, -1])
def test_results_are_written_to_out_and_padding_to_0(backend, td_errors, shape, time_axis):
    *arrays, valid = case(backend, shape)
    out = room(backend, 2 + td_errors, shape)
    options = OPTIONS | {"time_axis": time_axis, "td_errors": td_errors}
    assert ll.gae(*arrays, **options, valid=valid, out=out) is out
    expected = reference.gae(*map(backend.numpy, arrays), **options, valid=backend.numpy(valid))
    assert_all_close([backend.numpy(x) for x in out], expected)


@on_the_host
def test_out_need_not_be_contiguous_nor_the_inputs(backend):
    *arrays, valid = [x.T for x in case(backend)]
    out = tuple(x[::2] for x in room(backend, 3, (10, 6)))
    ll.gae(*arrays, **OPTIONS, valid=valid, td_errors=True, out=out)
    want = ll.gae(*arrays, **OPTIONS, valid=valid, td_errors=True)
    assert_all_close([backend.numpy(x) for x in out], [backend.numpy(x) for x in want])


@on_the_host
@pytest.mark.parametrize("other", range(6), ids=[*NAMES, "another result"])
def test_out_that_overlaps_is_refused_and_nothing_written(backend, other):
    arrays = case(backend)[:5]
    out = room(backend, 3)
    shared = arrays[other] if other < 3 else out[0] if other == 5 else None
    if shared is None:  # flags have one byte where a result has eight
        memory = np.zeros(8 * 30, bool)
        flags = memory[40:70].reshape(6, 5)
        flags[:] = backend.numpy(arrays[other])
        result = memory.view(np.float64).reshape(6, 5)
        if backend is TORCH:
            flags, result = torch.from_numpy(flags), torch.from_numpy(result)
        arrays[other], shared = flags, result
    before = [backend.numpy(x).copy() for x in arrays]
    with pytest.raises(ValueError, match=r"gae: out\[\d\] overlaps in memory"):
        ll.gae(*arrays, **OPTIONS, td_errors=True, out=(out[0], shared, out[2]))
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(backend.numpy(x), y)


@on_the_host
def test_views_of_an_input_overlap_and_views_between_its_entries_do_not(backend):
    *arrays, _ = case(backend)
    whole = room(backend, 1, (6, 10))[0]
    arrays[0] = whole[:, ::2]
    out = room(backend, 2)
    ll.gae(*arrays, **OPTIONS, out=(whole[:, 1::2], out[1]))
    with pytest.raises(ValueError, match="overlaps"):
        ll.gae(*arrays, **OPTIONS, out=(whole[:, :5], out[1]))


@on_the_host
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (list, TypeError, "out is a list; it must be a tuple of 3 arrays"),
        (lambda out: out[:2], ValueError, "out has 2 arrays, but there are 3 results"),
        (
            lambda out: (*out[:2], out[2][:3]),
            ValueError,
            r"out\[2\] is .*float64 of shape \(3, 5\)",
        ),
        (lambda out: (*out[:2], [1.0]), TypeError, r"out\[2\] is a list"),
    ],
    ids=["list", "two", "short", "no array"],
)
def test_out_that_does_not_fit_is_refused(backend, change, kind, words):
    *arrays, _ = case(backend)
    with pytest.raises(kind, match=words):
        ll.gae(*arrays, **OPTIONS, td_errors=True, out=change(room(backend, 3)))


@on_the_host
def test_out_of_another_dtype_is_refused(backend):
    *arrays, _ = case(backend)
    with pytest.raises(ValueError, match=r"float32 of shape .* the result is .*float64"):
        ll.gae(*arrays, **OPTIONS, out=room(backend, 2, dtype="float32"))


def test_out_that_is_read_only_is_refused():
    *arrays, _ = case(NUMPY)
    out = room(NUMPY, 2)
    out[1].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ll.gae(*arrays, **OPTIONS, out=out)


def test_out_is_refused_where_a_gradient_is_recorded():
    *arrays, _ = case(TORCH)
    arrays[1].requires_grad_()
    with pytest.raises(ValueError, match="where a gradient is recorded"):
        ll.gae(*arrays, **OPTIONS, out=room(TORCH, 2))
    with torch.no_grad():
        ll.gae(*arrays, **OPTIONS, out=room(TORCH, 2))
    arrays[1].requires_grad_(False)
    out = room(TORCH, 2)
    out[0].requires_grad_()
    with pytest.raises(ValueError, match="requires no gradient"):
        ll.gae(*arrays, **OPTIONS, out=out)


def test_out_is_refused_for_jax_and_td_errors_that_are_no_bool():
    arrays = [jnp.asarray(x) for x in case(NUMPY)[:5]]
    with pytest.raises(TypeError, match="a JAX array cannot be written to"):
        ll.gae(*arrays, **OPTIONS, out=(arrays[0], arrays[1]))
    with pytest.raises(TypeError, match="td_errors must be True or False"):
        ll.gae(*arrays, **OPTIONS, td_errors=1)
