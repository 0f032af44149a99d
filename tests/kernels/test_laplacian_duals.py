"""How multipliers move: against the loop, as descent does, and within their limits."""

import jax
import numpy as np
import pytest
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.compare import assert_close
from support.laplacian import step
from support.situations import features

from loopless.kernels.laplacian.duals import Multipliers, allo_updates, first_multipliers
from loopless.kernels.laplacian.losses import AlloParts, allo_loss
from loopless.reference import laplacian as reference
from loopless.verify.cases.batches import call_allo

RATES = {"dual_rate": 0.3, "barrier_rate": 0.2}
OPTIONS = {
    "half": RATES,
    "full": RATES | {"scale": "full"},
    "integral": RATES | {"integral_gain": 0.5, "proportional_gain": 0.4, "integral_decay": 0.7},
    "limits": RATES | {"scale": "full", "dual_limit": 0.2, "barrier_limit": 0.9},
}


def moved(backend, multipliers, parts, options):
    parts = AlloParts(*[backend.array(np.asarray(x)) for x in parts.values()])
    arrays = Multipliers(*[backend.array(np.asarray(x)) for x in multipliers])
    return [backend.numpy(x) for x in allo_updates(arrays, parts, **options)]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_updates_equal_the_loop_over_two_steps(backend, name, threshold):
    multipliers = expected = first_multipliers(3, dual=-0.5, barrier=0.7, dtype="float64")
    for seed in range(2):
        data = features((5, 3), seed) | {"gate_threshold": threshold}
        data |= {"scale": OPTIONS[name].get("scale", "half")}
        _, parts = call_allo(reference.allo_loss, data)
        expected = reference.allo_updates(*expected, parts, **OPTIONS[name])
        multipliers = moved(backend, multipliers, parts, OPTIONS[name])
        for x, y in zip(multipliers, expected, strict=True):
            assert_close(x, y)


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
@pytest.mark.parametrize("scale", ["half", "full"])
def test_one_update_is_one_step_of_descent(backend, scale):
    data = features((5, 3), 3) | {"scale": scale}
    got = step(backend, allo_loss, call_allo, data)
    _, parts = call_allo(reference.allo_loss, data)
    zeros = np.zeros((3, 3))
    multipliers = data["duals"], data["barrier"], zeros, zeros
    duals, barrier, *_ = moved(backend, multipliers, parts, RATES | {"scale": scale})
    assert_close(duals, data["duals"] - 0.3 * got["by_duals"])
    assert_close(barrier, data["barrier"] - 0.2 * got["by_barrier"])


@pytest.mark.parametrize(("scale", "rises"), [("half", True), ("full", False)])
def test_a_negative_q_raises_the_barrier_in_half_only(scale, rises):
    errors = -0.1 * np.eye(2)
    parts = AlloParts(*[0.0] * 6, errors, -errors, np.float64(-0.02), np.ones(2, bool))
    before = first_multipliers(2, barrier=0.5, dtype="float64")
    after = allo_updates(before, parts, **RATES, scale=scale)
    assert (after.barrier > 0.5) == rises
    assert after.barrier >= 0.5


def test_a_barrier_at_its_limit_stays():
    _, parts = call_allo(allo_loss, features((5, 3), 4))
    after = allo_updates(first_multipliers(3), parts, **RATES, barrier_limit=0.5)
    assert after.barrier == 0.5


def test_the_first_average_is_the_first_product():
    _, parts = call_allo(allo_loss, features((5, 3), 5))
    first = allo_updates(first_multipliers(3, dtype="float64"), parts, **RATES)
    assert_close(first.products, parts.errors * parts.other_errors)
    _, other = call_allo(allo_loss, features((5, 3), 6))
    second = allo_updates(first, other, **RATES)
    both = other.errors * other.other_errors
    assert_close(second.products, 0.9 * first.products + 0.1 * both)


def test_updates_compile_and_keep_dtypes():
    _, parts = call_allo(allo_loss, JAX.arguments(features((5, 3), 7), "float32"))
    before = first_multipliers(3)
    after = jax.jit(lambda m, p: allo_updates(m, p, **RATES))(before, parts)
    assert [x.dtype for x in after] == [np.float32] * 4
    assert [x.shape for x in after] == [np.shape(x) for x in before]
    plain = allo_updates(before, AlloParts(*map(np.asarray, parts)), **RATES)
    assert {x.dtype for x in plain} == {np.dtype(np.float32)}


def test_where_multipliers_begin():
    assert first_multipliers(2).duals.tolist() == [[-2, 0], [-2, -2]]
    assert first_multipliers(2, dual=-1, diagonal=True).duals.tolist() == [[-1, 0], [0, -1]]
    assert NUMPY.dtype(first_multipliers(2).barrier) == "float32"


def test_wrong_rates_are_refused():
    _, parts = call_allo(allo_loss, features((5, 3), 4))
    with pytest.raises(ValueError, match="dual_rate must be finite; received nan"):
        allo_updates(first_multipliers(3), parts, dual_rate=float("nan"), barrier_rate=0.0)
    with pytest.raises(ValueError, match="scale='whole' is unknown; choose one of half, full"):
        allo_updates(first_multipliers(3), parts, **RATES, scale="whole")


def test_what_stands_above_the_diagonal_is_dropped():
    _, parts = call_allo(allo_loss, features((5, 3), 8))
    before = first_multipliers(3, dtype="float64")._replace(duals=np.ones((3, 3)))
    after = allo_updates(before, parts, **RATES)
    assert not np.triu(after.duals, 1).any()
