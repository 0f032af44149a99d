"""An episodic buffer saved, copied and restored: it goes on alike, or the error says why not."""

import copy
import os

import numpy as np
import pytest
from support.episodes import Beside, assert_same, buffer_of

from loopless import process
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.replay.host.uniform import ReplayBuffer

FIELDS = {
    "obs": {"near": ((3,), np.float32), "image": ((20, 20), np.uint8)},
    "phase": ((), np.complex128),
    "flag": ((), np.bool_),
}
both_laws = pytest.mark.parametrize("law", ["episode", "transition"])


def through_a_file(buffer, folder):
    buffer.save(folder / "buffer")
    return EpisodicReplayBuffer.load(folder / "buffer")


def through_a_state(buffer, folder):
    other = buffer_of([0] * 4, capacity=buffer.capacity, law=buffer.law, seed=9).buffer
    other.set_step_weights([1, 2, 3, 4])
    other.restore(buffer.state())
    return other


WAYS = [through_a_file, through_a_state, lambda b, _: copy.copy(b), lambda b, _: copy.deepcopy(b)]


@both_laws
@pytest.mark.parametrize("way", WAYS, ids=["file", "state", "copy", "deepcopy"])
@pytest.mark.parametrize("weighted", ["", "rows", "steps", "rows and steps"])
@pytest.mark.parametrize("adds", [0, 1, 8, 20])
def test_case_19_what_is_saved_and_taken_up_again_goes_on_alike(law, way, weighted, adds, tmp_path):
    beside, rng = Beside(40, law=law, seed=5), np.random.default_rng(adds)
    one = beside.buffer
    for _ in range(adds):
        beside.add(([0] * int(rng.integers(2, 6)) + [1, 1]) * int(rng.integers(1, 3)))
        one.sample(3, discount=0.5)
    if adds and "rows" in weighted:
        one.set_row_weights(rng.random(one.rows))
    if adds and "steps" in weighted:
        one.set_step_weights(rng.random(len(one)))
    other = way(one, tmp_path)
    assert_same(one.state(), other.state())
    assert repr(one) == repr(other)
    for _ in range(8):
        for buffer in (one, other):
            row = {"obs": np.arange(7), "action": np.zeros((7, 3), np.float32)}
            buffer.add_episode(**row, terminals=[0] * 7)
        assert_same(*(buffer.sample(50, discount=0.9) for buffer in (one, other)))
        assert_same(one.state(), other.state())


@both_laws
def test_a_buffer_whose_weighted_rows_are_gone_goes_on_alike(law):
    one, other = (buffer_of([0] * 5, [0] * 3, law=law).buffer for _ in range(2))
    one.set_row_weights([9, 1])
    one.add_episode(obs=[1, 2, 3], action=np.zeros((3, 3), np.float32), terminals=[0] * 3)
    other.restore(one.state())
    assert_same(one.sample(200, discount=0.9), other.sample(200, discount=0.9))


@pytest.mark.parametrize("seed", [0, 2**64, 10**40])
def test_the_generator_is_seeded_and_named_as_that_of_the_rings(seed):
    episodic = EpisodicReplayBuffer(9, {"obs": ((), np.int64)}, seed=seed).state()["random"]
    ring = ReplayBuffer(9, {"obs": ((), np.int64)}, seed=seed).state()["random"]
    assert episodic.tolist() == ring.tolist()
    assert episodic.dtype == ring.dtype


def test_a_file_holds_every_dtype_and_what_was_declared(tmp_path):
    rng = np.random.default_rng(0)
    one = EpisodicReplayBuffer(12, FIELDS, terminals="single", law="transition", seed=3)
    for length in (7, 5):
        image = rng.integers(0, 256, (length, 20, 20)).astype(np.uint8)
        obs = {"near": rng.random((length, 3)).astype(np.float32), "image": image}
        phase = rng.random(length) + 1j
        one.add_episode(
            obs=obs, phase=phase, flag=phase.real < 0.5, terminals=[0, 1] + [0] * (length - 2)
        )
    other = through_a_file(one, tmp_path)
    assert (other.terminals, other.law, other.capacity) == ("single", "transition", 12)
    assert_same(one.state(), other.state())
    first, second = one.sample(20, discount=0.9), other.sample(20, discount=0.9)
    for name in ("obs", "next_obs"):
        assert_same(first.pop(name), second.pop(name))
    assert_same(first, second)


def test_a_copy_is_a_buffer_of_its_own():
    one = buffer_of([0] * 5, capacity=10).buffer
    other = copy.copy(one)
    before = one.state()
    other.add_episode(obs=[7, 8], action=np.ones((2, 3), np.float32), terminals=[0, 0])
    other.sample(5, discount=0.9)
    assert_same(before, one.state())


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "buffer"
    buffer = buffer_of([0] * 5).buffer
    buffer.save(path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    buffer.sample(3, discount=0.9)
    with pytest.raises(OSError, match="No space"):
        buffer.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["buffer"]


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.999])
def test_a_truncated_file_is_refused(kept, tmp_path):
    path = tmp_path / "buffer"
    buffer_of([0] * 50).buffer.save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ValueError, match="is not a complete buffer file"):
        EpisodicReplayBuffer.load(path)


def test_a_flipped_bit_is_found(tmp_path):
    path = tmp_path / "buffer"
    buffer_of([0] * 50).buffer.save(path)
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="differ from their checksums"):
        EpisodicReplayBuffer.load(path)


def test_files_of_other_buffers_and_missing_ones_are_refused(tmp_path):
    path = tmp_path / "buffer"
    ReplayBuffer(3, {"obs": ((), np.int64)}).save(path)
    with pytest.raises(ValueError, match="holds a ReplayBuffer of version 1, expected a Episodic"):
        EpisodicReplayBuffer.load(path)
    buffer_of([0] * 3).buffer.save(path)
    with pytest.raises(ValueError, match="holds a EpisodicReplayBuffer of version 1, expected a R"):
        ReplayBuffer.load(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        EpisodicReplayBuffer.load(tmp_path / "none")


def changed(state, name, change):
    value = change(np.array(state[name])) if change else None
    return {k: v for k, v in state.items() if k != name} | ({name: value} if change else {})


def first_off(array):
    array[0] += 1
    return array


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("lengths", None),
        ("lengths", first_off),
        ("lengths", lambda a: a.astype(np.float32)),
        ("lengths", lambda a: a - a),
        ("horizons", first_off),
        ("horizons", lambda a: a[:-1]),
        ("horizons", lambda a: a.astype(np.int64)),
        ("row_weights", lambda a: a - 2),
        ("row_weights", lambda a: a * np.nan),
        ("row_weights", lambda a: a * 0),
        ("row_weights", lambda a: a[:1]),
        ("row_weights", None),
        ("step_weights", lambda a: a - 2),
        ("step_weights", lambda a: np.where(a == 9, np.inf, a)),
        ("step_weights", lambda a: np.where(a == 9, 9, 0)),
        ("step_weights", lambda a: a.astype(np.float32)),
        ("step_weights", lambda a: np.append(a, 1)),
        ("first", lambda a: 11),
        ("capacity", lambda a: 99),
        ("law", lambda a: 1),
        ("terminals", lambda a: 1),
        ("random", lambda a: a[:1]),
        ("random", lambda a: a.astype(np.int64)),
        ("data/obs", lambda a: a[1:]),
        ("data/obs", lambda a: a.astype(np.int32)),
        ("data/action", None),
    ],
)
def test_a_wrong_state_is_refused_and_nothing_changes(name, change):
    one = buffer_of([0, 1, 1, 0, 0], [0] * 4, capacity=12).buffer
    one.set_row_weights([1, 0.5])
    one.set_step_weights([1, 2, 9, 1, 9, 1, 1, 1, 9])  # no starts weigh 9
    state = one.state()
    buffer = buffer_of([0] * 3, capacity=12).buffer
    before = buffer.state()
    with pytest.raises((TypeError, ValueError), match=r"restore: .* The buffer is unchanged\."):
        buffer.restore(changed(state, name, change))
    assert_same(before, buffer.state())


def test_a_state_that_does_not_fit_into_memory_changes_nothing(monkeypatch):
    one, other = (buffer_of([0] * 5, capacity=1000).buffer for _ in range(2))
    one.set_step_weights(np.arange(5))
    before = other.state()
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10_000)
    with pytest.raises(ValueError, match="weights of 1,000 steps need"):
        other.restore(one.state())
    assert_same(before, other.state())
