"""Checkpoints: everything comes back, equal states give equal bytes, the old make room."""

import json
import os
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.failures import BadRun


@pytest.fixture
def checkpoints(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    return Checkpoints(tmp_path)


def state(seed=0):
    """Arrays like a trainer's: weights, and the rest."""
    generator = np.random.default_rng(seed)
    return {
        "weights/net/0/kernel": generator.normal(size=(3, 4)).astype(np.float32),
        "weights/net/0/bias": generator.normal(size=4).astype(np.float32),
        "optimiser/0/count": np.array(seed, np.int32),
        "replay/terminated": generator.random(7) < 0.5,
        "key": generator.integers(0, 2**32, 2, np.uint32),
    }


def as_bytes(arrays):
    return {name: (a.dtype.name, a.shape, a.tobytes()) for name, a in arrays.items()}


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# Round trip


def test_what_was_saved_comes_back(checkpoints):
    numbers = {"step": 5, "best_return": -1.5, "nested": {"a": [1, None, True, "ü"]}}
    assert checkpoints.save(500_000, state(), numbers) == "step_000000500000"
    found = checkpoints.load()
    assert (found.name, found.step, found.kind) == ("step_000000500000", 500_000, "full")
    assert as_bytes(found.arrays) == as_bytes(state())
    assert found.numbers == numbers
    assert found.skipped == []
    folder = checkpoints.folder / "step_000000500000"
    assert set(os.listdir(folder)) == {"manifest.json", "weights.safetensors", "state.safetensors"}


DTYPES = [
    *(np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
    *(np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8),
    *(np.bool_, np.complex64, np.complex128, ">f4", ">i8"),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 3)])
def test_every_type_and_shape_comes_back(checkpoints, dtype, shape):
    size = int(np.prod(shape))
    array = np.arange(size).reshape(shape).astype(dtype)
    checkpoints.save(1, {"weights/x": array, "x": array.T}, {})
    found = checkpoints.load().arrays
    for name, expected in (("weights/x", array), ("x", array.T)):
        assert (found[name].dtype.name, found[name].shape) == (array.dtype.name, expected.shape)
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].flags.writeable


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name.isprintable() and name != "__metadata__"),
        npst.arrays(
            st.sampled_from([np.float32, np.uint8, np.int64]), npst.array_shapes(min_side=0)
        ),
    )
)
def test_any_names_and_arrays_come_back(tmp_path_factory, arrays):
    run = tmp_path_factory.mktemp("run")
    (run / "checkpoints").mkdir()
    checkpoints = Checkpoints(run)
    checkpoints.save(1, arrays, {})
    assert as_bytes(checkpoints.load().arrays) == as_bytes(arrays)


def test_the_safetensors_library_reads_the_files(checkpoints):
    arrays = state() | {"phase": np.array([1 + 2j])}
    checkpoints.save(1, arrays, {})
    folder = checkpoints.folder / "step_000000000001"
    weights = safetensors.numpy.load_file(folder / "weights.safetensors")
    rest = safetensors.numpy.load_file(folder / "state.safetensors")
    assert rest["phase"].shape == (1, 16)
    rest["phase"] = rest["phase"].view(np.complex128).reshape(1)
    assert as_bytes(weights | rest) == as_bytes({name: arrays[name] for name in weights | rest})
    assert weights.keys() | rest.keys() == arrays.keys()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array([None]), "y": np.array(["a"])}, r"x \(object\), y \(<U1\)"),
        ({"x": np.array([1], "M8[s]")}, "x"),
        ({"": np.zeros(1), "__metadata__": np.zeros(1)}, "'' as a name, '__metadata__' as a name"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(checkpoints, arrays, message):
    with pytest.raises(TypeError, match=rf"checkpoint: cannot store {message}"):
        checkpoints.save(1, arrays, {})
    assert os.listdir(checkpoints.folder) == []


@pytest.mark.parametrize("numbers", [{"x": float("nan")}, {"x": np.float32(1)}, {1: 2, "x": 3}])
def test_numbers_that_are_no_json_are_refused(checkpoints, numbers):
    with pytest.raises(ValueError, match="numbers must be JSON, finite and plain"):
        checkpoints.save(1, state(), numbers)
    assert os.listdir(checkpoints.folder) == []


# Equal bytes


def test_equal_states_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    arrays = state()
    Checkpoints(tmp_path / "a").save(7, arrays, {"x": 1, "y": 2}, best=True)
    shuffled = {name: arrays[name] for name in reversed(arrays)}
    Checkpoints(tmp_path / "b").save(7, shuffled, {"y": 2, "x": 1}, best=True)
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.parametrize("change", ["weights/net/0/bias", "key"])
def test_other_states_give_other_bytes(checkpoints, change):
    arrays = state()
    checkpoints.save(1, arrays, {})
    before = files(checkpoints.folder)
    arrays[change] = arrays[change] + 1
    checkpoints.save(1, arrays, {})
    after = files(checkpoints.folder)
    assert before.keys() == after.keys()
    assert sum(before[name] != after[name] for name in before) == 2  # the array and the manifest


def test_arrays_in_the_file_are_aligned(checkpoints):
    arrays = {"a": np.ones(3, np.uint8), "b": np.ones(1), "c": np.ones(1, np.float32)}
    checkpoints.save(1, arrays, {})
    data = (checkpoints.folder / "step_000000000001" / "state.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    places = json.loads(data[8 : 8 + length])
    starts = {name: (8 + length + place["data_offsets"][0]) for name, place in places.items()}
    assert all(start % arrays[name].itemsize == 0 for name, start in starts.items())


# Names, rotation


def kinds(checkpoints):
    return {
        int(name[5:]): sorted(file[0] for file in os.listdir(checkpoints.folder / name))
        for name in checkpoints.names()
    }


FULL, WEIGHTS = ["m", "s", "w"], ["m", "w"]


def test_the_newest_two_stay_full_and_the_older_keep_their_weights(checkpoints):
    for step in (1, 2, 3, 10):
        checkpoints.save(step, state(step), {"step": step}, best=step == 1)
    assert kinds(checkpoints) == {10: FULL, 3: FULL, 2: WEIGHTS, 1: WEIGHTS}
    assert (checkpoints.run / "latest").read_text() == "step_000000000010\n"
    assert (checkpoints.run / "best").read_text() == "step_000000000001\n"
    assert checkpoints.load().step == 10
    best = checkpoints.load("best", kind="weights")
    weights = {name: a for name, a in state(1).items() if name.startswith("weights/")}
    assert as_bytes(best.arrays) == as_bytes(weights)
    assert best.numbers == {"step": 1}


@pytest.mark.parametrize(("keep_weights", "left"), [(0, [5, 4, 1]), (1, [5, 4, 3, 1])])
def test_older_weights_can_be_limited_and_the_best_stays(tmp_path, keep_weights, left):
    (tmp_path / "checkpoints").mkdir()
    checkpoints = Checkpoints(tmp_path, keep_weights=keep_weights)
    for step in (1, 2, 3, 4, 5):
        checkpoints.save(step, state(), {}, best=step == 1)
    assert list(kinds(checkpoints)) == left
    assert checkpoints.best() == "step_000000000001"


def test_weights_alone_push_out_no_full_checkpoint(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, state(step), {})
    for step in (3, 4):
        checkpoints.save(step, state(step), {}, kind="weights", best=True)
    assert kinds(checkpoints) == {4: WEIGHTS, 3: WEIGHTS, 2: FULL, 1: FULL}
    found = checkpoints.load()
    assert found.step == 2
    assert found.skipped == [
        "step_000000000004: it holds weights only.",
        "step_000000000003: it holds weights only.",
    ]
    assert checkpoints.load(kind="weights").step == 4


def test_weights_alone_do_not_replace_a_full_one_of_the_same_step(checkpoints):
    checkpoints.save(1, state(), {})
    checkpoints.save(1, state(), {}, kind="weights", best=True)
    assert checkpoints.load("best").kind == "full"


def test_a_full_one_replaces_weights_of_the_same_step(checkpoints):
    checkpoints.save(1, state(), {}, kind="weights")
    checkpoints.save(1, state(3), {})
    assert as_bytes(checkpoints.load().arrays) == as_bytes(state(3))
    assert os.listdir(checkpoints.folder) == ["step_000000000001"]


def test_steps_are_compared_as_numbers(checkpoints):
    for step in (999_999_999_999, 1_000_000_000_000):
        checkpoints.save(step, state(), {})
    assert checkpoints.load().step == 1_000_000_000_000


def test_what_lies_after_the_resumed_step_is_dropped(checkpoints):
    for step in (1, 2, 3):
        checkpoints.save(step, state(), {}, best=step == 3)
    assert checkpoints.trim_after(2) == ["step_000000000003"]
    assert checkpoints.load().step == 2
    assert checkpoints.best() is None
    assert checkpoints.trim_after(2) == []


def test_the_former_best_is_the_best_again_when_the_later_one_is_dropped(checkpoints):
    for step in (1, 2, 3):
        checkpoints.save(step, state(), {}, best=step != 2)
    checkpoints.trim_after(2)
    assert checkpoints.best() == "step_000000000001"


def test_a_best_that_a_dying_process_did_not_point_to_is_pointed_to(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, state(), {}, best=True)
    (checkpoints.run / "best").write_text("step_000000000001\n")
    checkpoints.trim_after(2)
    assert checkpoints.best() == "step_000000000002"


@pytest.mark.parametrize("pointer", ["step_000000000001\n", "", None])
def test_a_latest_that_a_dying_process_did_not_set_is_set(checkpoints, pointer):
    for step in (1, 2):
        checkpoints.save(step, state(), {})
    latest = checkpoints.run / "latest"
    latest.unlink() if pointer is None else latest.write_text(pointer)
    checkpoints.trim_after(2)
    assert latest.read_text() == "step_000000000002\n"


def test_a_best_that_was_marked_after_its_save_stays(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, state(), {}, best=step == 1)
    checkpoints.save(2, state(), {}, kind="weights", best=True)
    checkpoints.trim_after(2)
    assert checkpoints.best() == "step_000000000002"


def test_a_folder_that_is_missing_is_made(tmp_path):
    Checkpoints(tmp_path / "crash").save(1, state(), {})
    assert Checkpoints(tmp_path / "crash").load().step == 1


def test_a_checkpoint_is_loaded_by_its_name(checkpoints):
    for step in (1, 2):
        checkpoints.save(step, state(step), {})
    assert checkpoints.load("step_000000000001").step == 1
    assert checkpoints.load("latest").step == 2


@pytest.mark.parametrize("name", ["step_000000000009", "../checkpoints/step_000000000001", "", "x"])
def test_an_unknown_name_is_said(checkpoints, name):
    checkpoints.save(1, state(), {})
    with pytest.raises(BadRun, match=r"has no checkpoint .* There are: step_000000000001\."):
        checkpoints.load(name)


def test_no_checkpoint_is_said(checkpoints):
    with pytest.raises(BadRun, match="has no checkpoint to load") as caught:
        checkpoints.load()
    assert caught.value.exit_code == 2
    with pytest.raises(BadRun, match="has no best checkpoint: no checkpoint was marked"):
        checkpoints.load("best")
    shutil.rmtree(checkpoints.folder)
    assert checkpoints.names() == []


# The trainer's own arrays


def test_a_template_that_fits_passes(checkpoints):
    checkpoints.save(1, state(), {})
    assert checkpoints.load(template=state(5)).step == 1
    assert checkpoints.load(kind="weights", template=state(5)).step == 1


def test_all_differences_from_the_template_are_told_before_anything_is_read(checkpoints):
    checkpoints.save(1, state(), {})
    (checkpoints.folder / "step_000000000001" / "weights.safetensors").write_bytes(b"")
    template = state() | {
        "weights/net/0/bias": np.zeros(5, np.float32),
        "key": np.zeros(2, np.int32),
        "extra": np.zeros(1),
    }
    del template["replay/terminated"]
    with pytest.raises(BadRun, match="step_000000000001 does not fit this config") as caught:
        checkpoints.load(template=template)
    assert str(caught.value).splitlines()[1:] == [
        "  extra is missing",
        "  key is uint32 [2], expected int32 [2]",
        "  replay/terminated is not expected",
        "  weights/net/0/bias is float32 [4], expected float32 [5]",
    ]


def test_weights_alone_are_nothing_to_resume_from(checkpoints):
    assert not checkpoints.have_state()
    checkpoints.save(1, state(), {}, kind="weights", best=True)
    assert not checkpoints.have_state()
    checkpoints.save(2, state(), {})
    assert checkpoints.have_state()


def test_a_broken_checkpoint_may_have_been_a_full_one(checkpoints):
    name = checkpoints.save(1, state(), {}, kind="weights")
    (checkpoints.folder / name / "manifest.json").write_text("{")
    assert checkpoints.have_state()


def test_a_run_that_starts_anew_keeps_no_pointer(checkpoints):
    checkpoints.save(1, state(), {}, kind="weights", best=True)
    assert checkpoints.trim_after(-1) == ["step_000000000001"]
    assert [path.name for path in checkpoints.run.iterdir()] == ["checkpoints"]
    assert checkpoints.names() == []
