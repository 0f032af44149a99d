"""From what code bases store to the explicit form: `successor_values`, `unlag`, `valid_mask`."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.compare import assert_all_close, assert_close

import loopless as ll
from loopless import reference

NAN = np.nan
AUTORESETS = ("same_step", "next_step")
# JAX compiles for each shape: few of them, each there for a reason.
SHAPES = ((5,), (5, 3), (1, 3), (2, 3, 4))

every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_autoreset = pytest.mark.parametrize("autoreset", AUTORESETS)


def window(shape, seed: int, rate: float = 0.3) -> dict:
    """Arguments of `successor_values`, by name; time is the first axis."""
    rng = np.random.default_rng(seed)
    return {
        "values": rng.standard_normal(shape),
        "last_values": np.asarray(rng.standard_normal(shape[1:])),
        "terminated": rng.random(shape) < rate,
        "truncated": rng.random(shape) < rate,
        "final_values": rng.standard_normal(shape),
        "previous_end": np.asarray(rng.random(shape[1:]) < 0.5),
    }


def moved(data: dict, time_axis: int) -> dict:
    """The same window with time on another axis."""
    rows = ("last_values", "previous_end")
    return {
        name: x if name in rows or x is None else np.ascontiguousarray(np.moveaxis(x, 0, time_axis))
        for name, x in data.items()
    }


def assert_same_rows(backend, got, expected) -> None:
    """Equal masks, and equal successor values wherever the mask says that there is a row."""
    values, valid = (backend.numpy(x) for x in got)
    np.testing.assert_array_equal(valid, expected[1])
    np.testing.assert_array_equal(values[valid], expected[0][valid])


# successor_values


@every_autoreset
@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@given(
    shape=st.sampled_from((*SHAPES, (7, 1), (4, 0), (30, 2))),
    seed=st.integers(0, 2**16),
    rate=st.sampled_from((0.0, 0.2, 0.7, 1.0)),
)
def test_successor_values_equal_their_loop_twin(backend, autoreset, shape, seed, rate):
    data = window(shape, seed, rate)
    got = ll.successor_values(**backend.arguments(data), autoreset=autoreset)
    assert_same_rows(backend, got, reference.successor_values(**data, autoreset=autoreset))


@every_autoreset
@every_shape
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_successor_values_of_jax_equal_their_loop_twin(autoreset, shape, rate):
    data = window(shape, 0, rate)
    got = ll.successor_values(**JAX.arguments(data), autoreset=autoreset)
    assert_same_rows(JAX, got, reference.successor_values(**data, autoreset=autoreset))


@every_autoreset
def test_successor_values_under_jit_equal_their_loop_twin(autoreset):
    data = window((5, 3), 1)
    compiled = jax.jit(lambda arrays: ll.successor_values(**arrays, autoreset=autoreset))
    got = compiled(JAX.arguments(data))
    assert_same_rows(JAX, got, reference.successor_values(**data, autoreset=autoreset))


@every_autoreset
@every_backend
@pytest.mark.parametrize("time_axis", [0, 1, 2, -1, -2])
def test_case_15_successor_values_on_any_time_axis(backend, autoreset, time_axis):
    data = window((2, 3, 4), 2)
    options = {"autoreset": autoreset, "time_axis": time_axis}
    got = ll.successor_values(**backend.arguments(moved(data, time_axis)), **options)
    expected = reference.successor_values(**data, autoreset=autoreset)
    first = [np.moveaxis(backend.numpy(x), time_axis, 0) for x in got]
    assert_same_rows(NUMPY, first, expected)


@every_autoreset
@every_backend
@every_shape
def test_values_may_hold_one_row_more_instead_of_last_values(backend, autoreset, shape):
    data = window(shape, 3)
    expected = reference.successor_values(**data, autoreset=autoreset)
    data["values"] = np.concatenate([data["values"], data["last_values"][None]])
    data["last_values"] = None
    got = ll.successor_values(**backend.arguments(data), autoreset=autoreset)
    assert_same_rows(backend, got, expected)


@every_backend
@pytest.mark.parametrize("time_axis", [1, -1])
def test_case_15_one_row_more_on_the_last_axis(backend, time_axis):
    data = window((5, 3), 4)
    expected = reference.successor_values(**data)
    data["values"] = np.concatenate([data["values"], data["last_values"][None]])
    data["last_values"] = None
    arguments = backend.arguments(moved(data, time_axis))
    got = ll.successor_values(**arguments, time_axis=time_axis)
    assert_same_rows(NUMPY, [backend.numpy(x).T for x in got], expected)


def ragged(shape, seed: int) -> dict:
    """A window without last values whose columns each end at a flag; rows after it are padding."""
    data = window(shape, seed)
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, shape[0] + 1, shape[1:])
    steps = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    data["valid"] = steps < counts
    data["terminated"] |= steps == counts - 1
    data["values"][~data["valid"]] = NAN
    return data | {"last_values": None}


@every_autoreset
@every_backend
@pytest.mark.parametrize("time_axis", [0, -1])
@pytest.mark.parametrize("last_values", [False, True])
def test_padding_has_no_successor_and_flagged_columns_need_no_last_values(
    backend, autoreset, time_axis, last_values
):
    data = ragged((5, 3), 3)
    if last_values:
        data["last_values"] = np.array([1.0, 2.0, 3.0])
        data["terminated"][:] = False
    if autoreset == "same_step":
        data["truncated"][-1] = True
    options = {"autoreset": autoreset}
    expected = reference.successor_values(**data, **options)
    arguments = backend.arguments(moved(data, time_axis))
    got = ll.successor_values(**arguments, **options, time_axis=time_axis)
    got = [np.moveaxis(backend.numpy(x), time_axis, 0) for x in got]
    assert_same_rows(NUMPY, got, expected)
    np.testing.assert_array_equal(got[0][~data["valid"]], 0)


@pytest.mark.parametrize("seed", range(8))
@every_autoreset
def test_ragged_windows_equal_their_loop_twin(autoreset, seed):
    data = ragged((4, 6), seed)
    got = ll.successor_values(**data, autoreset=autoreset)
    assert_same_rows(NUMPY, got, reference.successor_values(**data, autoreset=autoreset))


@every_backend
def test_a_column_that_ends_without_a_flag_needs_last_values(backend):
    data = window((5, 3), 6, rate=0.0) | {"last_values": None}
    data["truncated"][-1, :2] = True
    if backend is JAX:
        values, _ = ll.successor_values(**backend.arguments(data))
        assert np.isnan(backend.numpy(values)).sum() == 1
        return
    with pytest.raises(ValueError, match="1 columns end without a flag"):
        ll.successor_values(**backend.arguments(data))
    data["truncated"][-1] = True
    with pytest.raises(ValueError, match="3 columns end without a flag"):
        ll.successor_values(**backend.arguments(data), autoreset="next_step")


@every_backend
def test_case_09_final_values_are_read_at_truncated_rows_only(backend):
    data = window((5, 3), 5)
    clean = ll.successor_values(**backend.arguments(data))
    read = data["truncated"] & ~data["terminated"]
    assert read.any()
    assert not read.all()
    data["final_values"][~read] = NAN
    poisoned = ll.successor_values(**backend.arguments(data))
    np.testing.assert_array_equal(backend.numpy(poisoned[0]), backend.numpy(clean[0]))
    assert np.isfinite(backend.numpy(poisoned[0])).all()


@every_backend
def test_case_09_next_values_of_terminated_rows_are_not_read(backend):
    """The row after a termination may hold anything, for example a reset state never valued."""
    data = window((5, 3), 6)
    data["terminated"][2] = True
    data["values"][3] = NAN
    got, _ = ll.successor_values(**backend.arguments(data))
    np.testing.assert_array_equal(backend.numpy(got)[2], 0.0)


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
def test_missing_final_values_are_an_error(backend):
    data = window((5, 3), 7)
    count = int((data["truncated"] & ~data["terminated"]).sum())
    assert count
    data["final_values"] = None
    with pytest.raises(
        ValueError, match=rf"^successor_values: {count} rows are truncated.*final_values.*next_step"
    ):
        ll.successor_values(**backend.arguments(data))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_missing_final_values_are_nan_on_jax_at_truncated_rows_only(compiled):
    data = window((5, 3), 7)
    expected, _ = reference.successor_values(**data)
    missing = data["truncated"] & ~data["terminated"]
    data["final_values"] = None
    function = ll.successor_values
    if compiled:
        function = jax.jit(lambda **arrays: ll.successor_values(**arrays))
    next_values, valid = function(**JAX.arguments(data))
    np.testing.assert_array_equal(JAX.numpy(next_values), np.where(missing, NAN, expected))
    assert JAX.numpy(valid).all()


@every_backend
@pytest.mark.parametrize("ended", ["terminated", "neither"])
def test_final_values_are_not_missed_where_no_row_needs_them(backend, ended):
    data = window((5, 3), 8)
    data["final_values"] = None
    data["truncated"] &= data["terminated"] if ended == "terminated" else False
    got = ll.successor_values(**backend.arguments(data))
    assert_same_rows(backend, got, reference.successor_values(**data))


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("flag", [False, True])
def test_without_last_values_nothing_follows_a_dummy_row(backend, flag):
    """It is the loop's 0, and no NaN, whatever its own flags are."""
    last = np.array([[True], [flag]])
    data = {"values": np.ones((2, 1)), "terminated": last, "truncated": last & False}
    options = {"last_values": None, "autoreset": "next_step"}
    got = ll.successor_values(**backend.arguments(data), **options)
    assert_same_rows(backend, got, reference.successor_values(**data, **options))
    assert not np.any(backend.numpy(got[0]))


@every_backend
def test_next_step_asks_for_no_final_values(backend):
    data = window((5, 3), 9)
    data["final_values"] = None
    got = ll.successor_values(**backend.arguments(data), autoreset="next_step")
    assert_same_rows(backend, got, reference.successor_values(**data, autoreset="next_step"))


@every_backend
def test_no_column_ended_before_the_window_unless_told(backend):
    data = window((5, 3), 10)
    data["previous_end"] = None
    got = ll.successor_values(**backend.arguments(data), autoreset="next_step")
    assert_same_rows(backend, got, reference.successor_values(**data, autoreset="next_step"))
    assert backend.numpy(got[1])[0].all()


@every_backend
def test_flags_on_dummy_rows_count_for_nothing(backend):
    data = window((5, 3), 11)
    data["terminated"][:] = data["truncated"][:] = True
    data["previous_end"] = np.array([True, False, True])
    _, valid = ll.successor_values(**backend.arguments(data), autoreset="next_step")
    real = (np.arange(5)[:, None] + ~data["previous_end"]) % 2 == 1
    np.testing.assert_array_equal(backend.numpy(valid), real)


@every_autoreset
@every_backend
@pytest.mark.parametrize("shape", [(0, 3), (0,)], ids=str)
def test_case_08_an_empty_window_gives_empty_arrays(backend, autoreset, shape):
    data = window(shape, 12)
    next_values, valid = ll.successor_values(**backend.arguments(data), autoreset=autoreset)
    assert tuple(next_values.shape) == tuple(valid.shape) == shape


@every_autoreset
@every_backend
def test_successor_values_keep_library_and_dtype(backend, autoreset):
    arguments = backend.arguments(window((5, 3), 13), "float32")
    next_values, valid = ll.successor_values(**arguments, autoreset=autoreset)
    assert backend.owns(next_values)
    assert backend.dtype(next_values) == "float32"
    assert backend.owns(valid)
    assert backend.dtype(valid) == "bool"


@every_backend
def test_case_25_integer_flags_equal_booleans(backend):
    data = window((5, 3), 14)
    expected = reference.successor_values(**data, autoreset="next_step")
    for name in ("terminated", "truncated", "previous_end"):
        data[name] = data[name].astype(np.uint8)
    got = ll.successor_values(**backend.arguments(data), autoreset="next_step")
    assert_same_rows(backend, got, expected)


def test_one_environment_may_pass_the_last_value_as_numpy_slices_it():
    """x[-1] of a [T] array is a NumPy scalar, not an array of no axes."""
    data = window((6,), 15)
    expected = reference.successor_values(**data)
    got = ll.successor_values(**data | {"last_values": np.append(0.0, data["last_values"])[-1]})
    assert_same_rows(NUMPY, got, expected)


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_gradients_reach_exactly_the_values_that_were_read(backend):
    data = window((5, 3), 16)
    read = data["truncated"] & ~data["terminated"]
    data["final_values"][~read] = NAN
    arguments = backend.arguments(data)
    names = ("values", "last_values", "final_values")
    if backend is TORCH:
        inputs = [arguments[name].requires_grad_() for name in names]
        next_values, _ = ll.successor_values(**arguments)
        gradients = torch.autograd.grad(next_values.sum(), inputs)
    else:
        rest = {name: x for name, x in arguments.items() if name not in names}
        chosen = {name: arguments[name] for name in names}
        gradients = jax.grad(lambda x: ll.successor_values(**x, **rest)[0].sum())(chosen)
        gradients = [gradients[name] for name in names]
    plain = (~data["terminated"] & ~data["truncated"]).astype(float)
    after_first = np.concatenate([np.zeros((1, 3)), plain[:-1]])
    expected = (after_first, plain[-1], read.astype(float))
    assert_all_close([backend.numpy(x) for x in gradients], expected)


# unlag and valid_mask


@every_backend
@every_shape
@pytest.mark.parametrize("dtype", ["float64", "float32", "bool", "int64"])
def test_unlag_equals_its_loop_twin(backend, shape, dtype):
    rng = np.random.default_rng(0)
    x = (4 * rng.random(shape)).astype(dtype)
    last = np.asarray(4 * rng.random(shape[1:])).astype(dtype)
    got = ll.unlag(backend.array(x), backend.array(last))
    assert backend.owns(got)
    assert backend.dtype(got) == dtype
    np.testing.assert_array_equal(backend.numpy(got), reference.unlag(x, last))


@every_backend
@pytest.mark.parametrize("time_axis", [0, 1, 2, -1, -2])
def test_case_15_unlag_on_any_time_axis(backend, time_axis):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 3, 4))
    last = rng.standard_normal(np.delete(x.shape, time_axis))
    got = ll.unlag(backend.array(x), backend.array(last), time_axis=time_axis)
    expected = reference.unlag(x, last, time_axis=time_axis)
    np.testing.assert_array_equal(backend.numpy(got), expected)


@every_backend
@pytest.mark.parametrize("shape", [(0, 3), (0,)], ids=str)
def test_case_08_unlag_of_no_rows_gives_no_rows(backend, shape):
    x, last = np.zeros(shape), np.ones(shape[1:])
    got = ll.unlag(backend.array(x), backend.array(last))
    assert tuple(got.shape) == reference.unlag(x, last).shape == shape


def test_unlag_takes_the_last_flag_as_numpy_slices_it():
    flags = np.array([True, False, False, True])
    np.testing.assert_array_equal(ll.unlag(flags[:-1], flags[-1]), flags[1:])


@every_backend
@pytest.mark.parametrize(
    ("lengths", "steps", "time_axis"),
    [
        ([0, 1, 3], 3, 0),
        ([0, 1, 3], 3, 1),
        ([0, 1, 3], 4, -1),
        ([0, 1, 3], 4, -2),
        ([[1, 2], [0, 4]], 4, 0),
        ([[1, 2], [0, 4]], 4, 1),
        ([[1, 2], [0, 4]], 4, 2),
        (2, 3, 0),
        ([0, 0], 0, 0),
        (np.zeros(0, int), 3, 0),
    ],
    ids=str,
)
def test_case_08_valid_mask_equals_its_loop_twin(backend, lengths, steps, time_axis):
    lengths = np.asarray(lengths)
    got = ll.valid_mask(backend.array(lengths), steps, time_axis=time_axis)
    assert backend.owns(got)
    assert backend.dtype(got) == "bool"
    expected = reference.valid_mask(lengths, steps, time_axis=time_axis)
    np.testing.assert_array_equal(backend.numpy(got), expected)


@every_backend
@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_valid_mask_takes_lengths_of_any_integer_dtype(backend, dtype):
    lengths = np.array([0, 2, 200], dtype)
    got = backend.numpy(ll.valid_mask(backend.array(lengths), 300))
    np.testing.assert_array_equal(got.sum(0), [0, 2, 200])


# Case 22: one stream of episodes, its flags and rewards stored in three layouts

LAYOUTS = {
    "post-step": (),
    "episode-start": ("terminated", "truncated"),
    "fully lagged": ("terminated", "truncated", "rewards"),
}


def stored(stream: dict, late: tuple[str, ...]) -> tuple[dict, dict]:
    """What a collector stores that writes the `late` fields one row late, and what it has left.

    Row 0 of a late field belongs to the window before; here it is poison.
    """
    held = {"terminated": np.ones(3, bool), "truncated": np.ones(3, bool), "rewards": [NAN] * 3}
    rows = {name: [] for name in held}
    for t in range(len(stream["rewards"])):
        for name, row in rows.items():
            row.append(held[name] if name in late else stream[name][t])
            held[name] = stream[name][t]
    return {name: np.stack(row) for name, row in rows.items()}, held


@pytest.mark.parametrize("late", LAYOUTS.values(), ids=LAYOUTS)
@every_backend
@pytest.mark.parametrize("time_axis", [0, 1])
def test_case_22_flag_layouts_give_identical_results(backend, late, time_axis):
    data = window((9, 3), 0)
    data["final_values"][~data["truncated"]] = NAN
    stream = data | {"rewards": np.random.default_rng(1).standard_normal((9, 3))}

    def array(x):
        return backend.array(np.ascontiguousarray(np.moveaxis(x, 0, time_axis)))

    rows, left = stored(stream, late)
    explicit = {name: array(x) for name, x in rows.items()}
    for name in late:
        last = backend.array(np.asarray(left[name]))
        explicit[name] = ll.unlag(explicit[name], last, time_axis=time_axis)
    for name, x in explicit.items():
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(array(stream[name])))

    values = array(data["values"])
    ends = {name: explicit[name] for name in ("terminated", "truncated")}
    next_values, valid = ll.successor_values(
        values,
        backend.array(data["last_values"]),
        **ends,
        final_values=array(data["final_values"]),
        time_axis=time_axis,
    )
    got = ll.gae(
        explicit["rewards"],
        values,
        next_values,
        **ends,
        gamma=0.9,
        lambda_=0.8,
        valid=valid,
        time_axis=time_axis,
    )
    next_values, _ = reference.successor_values(**data)
    expected = reference.gae(
        stream["rewards"],
        data["values"],
        next_values,
        data["terminated"],
        data["truncated"],
        gamma=0.9,
        lambda_=0.8,
    )
    assert_all_close([np.moveaxis(backend.numpy(x), time_axis, 0) for x in got], expected)


# Case 23: one stream of episodes, collected with SAME_STEP and with NEXT_STEP autoreset

STEPS = 8  # rows of every window below


def next_step_rows(stream: dict, env: int) -> list[dict]:
    """The rows of one env as NEXT_STEP gives them: after each end a dummy row, its reward junk."""
    rows = []
    for t in range(len(stream["rewards"])):
        real = {name: stream[name][t, env] for name in ("rewards", "values")}
        ends = {name: bool(stream[name][t, env]) for name in ("terminated", "truncated")}
        rows.append(real | ends | {"step": t})
        if ends["terminated"] or ends["truncated"]:
            dummy = {"rewards": 1e3, "values": stream["final_values"][t, env], "step": None}
            rows.append(dummy | {"terminated": False, "truncated": False})
    return rows


def next_step_window(stream: dict, start: int) -> tuple[dict, np.ndarray]:
    """Rows `start` to `start` + STEPS of each env, and which step of the stream each row is."""
    columns = [next_step_rows(stream, env) for env in range(stream["rewards"].shape[1])]
    data = {
        name: np.array([[rows[start + t][name] for rows in columns] for t in range(STEPS)])
        for name in ("rewards", "values", "terminated", "truncated")
    }
    data["last_values"] = np.array([rows[start + STEPS]["values"] for rows in columns])
    before = [rows[start - 1] if start else None for rows in columns]
    data["previous_end"] = np.array(
        [row is not None and (row["terminated"] or row["truncated"]) for row in before]
    )
    steps = [[rows[start + t]["step"] for rows in columns] for t in range(STEPS)]
    return data, np.array(steps, dtype=object)


def same_step_window(stream: dict, steps: np.ndarray) -> tuple[dict, np.ndarray]:
    """The same steps as ragged columns, NaN beyond; `values` holds one row more, the successor."""
    envs = steps.shape[1]
    data = {name: np.full((STEPS, envs), NAN) for name in ("rewards", "final_values")}
    data |= {name: np.zeros((STEPS, envs), bool) for name in ("terminated", "truncated")}
    data["values"] = np.full((STEPS + 1, envs), NAN)
    lengths = np.zeros(envs, int)
    for env in range(envs):
        wanted = [t for t in steps[:, env] if t is not None]
        lengths[env] = len(wanted)
        for row, t in enumerate(wanted):
            for name in ("rewards", "terminated", "truncated", "values"):
                data[name][row, env] = stream[name][t, env]
            if stream["truncated"][t, env]:
                data["final_values"][row, env] = stream["final_values"][t, env]
        data["values"][len(wanted), env] = stream["values"][wanted[-1] + 1, env]
    return data, lengths


def episodes(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    shape = (40, 3)
    stream = {name: rng.standard_normal(shape) for name in ("rewards", "values", "final_values")}
    stream["terminated"] = rng.random(shape) < 0.2
    stream["truncated"] = (rng.random(shape) < 0.2) & ~stream["terminated"]
    return stream


def advantages(backend, data: dict, valid, **options):
    arrays = backend.arguments({k: x for k, x in data.items() if k != "rewards"})
    last_values = arrays.pop("last_values", None)
    next_values, real = ll.successor_values(last_values=last_values, **arrays, **options)
    valid = real if valid is None else valid
    ends = arrays["terminated"], arrays["truncated"]
    values = arrays["values"][:STEPS]
    out, _ = ll.gae(
        backend.array(data["rewards"]),
        values,
        next_values,
        *ends,
        gamma=0.9,
        lambda_=0.8,
        valid=valid,
    )
    return backend.numpy(out), backend.numpy(valid)


WINDOWS = [(seed, start) for seed in (0, 1) for start in (0, 1, 2, 3, 4, 5, 6, 13)]


@every_backend
@pytest.mark.parametrize(("seed", "start"), WINDOWS)
def test_case_23_autoreset_modes_give_identical_advantages(backend, seed, start):
    stream = episodes(seed)
    data, steps = next_step_window(stream, start)
    next_step, real = advantages(backend, data, None, autoreset="next_step")
    np.testing.assert_array_equal(real, np.not_equal(steps, None))
    np.testing.assert_array_equal(next_step[~real], 0.0)

    data, lengths = same_step_window(stream, steps)
    mask = ll.valid_mask(backend.array(lengths), STEPS)
    same_step, valid = advantages(backend, data, mask)
    np.testing.assert_array_equal(valid.sum(0), real.sum(0))
    # column by column, so that the real rows are compared in the order of time
    assert_close(next_step.T[real.T], same_step.T[valid.T])


@pytest.mark.parametrize(("seed", "start"), WINDOWS)
def test_case_23_both_encodings_equal_the_loop_over_the_stream(seed, start):
    stream = episodes(seed)
    data, steps = next_step_window(stream, start)
    got, real = advantages(NUMPY, data, None, autoreset="next_step")
    for env in range(3):
        rows = [t for t in steps[:, env] if t is not None]
        part = {name: x[rows[0] : rows[-1] + 1, env] for name, x in stream.items()}
        rewards = part.pop("rewards")
        after = stream["values"][rows[-1] + 1, env]
        next_values, _ = reference.successor_values(last_values=after, **part)
        ends = part["terminated"], part["truncated"]
        expected, _ = reference.gae(
            rewards, part["values"], next_values, *ends, gamma=0.9, lambda_=0.8
        )
        assert_close(got[real[:, env], env], expected)


def test_case_23_some_window_starts_with_a_dummy_row_and_some_ends_with_one():
    windows = [next_step_window(episodes(seed), start)[1] for seed, start in WINDOWS]
    assert any(None in steps[0] for steps in windows)
    assert any(None in steps[-1] for steps in windows)
