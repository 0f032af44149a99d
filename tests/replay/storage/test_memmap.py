"""Buffers in files: what was flushed comes back after a crash, and one process writes."""

import errno
import multiprocessing
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from loopless import process
from loopless.replay import EpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from loopless.replay.storage import memmap

FIELDS = {
    "obs": ((3,), np.float32),
    "next_obs": ((3,), np.float32),
    "frame": ((300,), np.uint8),  # an array of its own
    "reward": ((), np.float32),
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}
KINDS = {
    "uniform": (ReplayBuffer, {}),
    "prioritized": (PrioritizedReplayBuffer, {"alpha": 0.5}),
    "n-step": (ReplayBuffer, {"n_step": 3, "gamma": 0.9}),
    "single copy": (ReplayBuffer, {"single_copy": "obs"}),
    "single copy, prioritized": (PrioritizedReplayBuffer, {"single_copy": "obs"}),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that a small buffer has many blocks."""
    monkeypatch.setattr(memmap, "BLOCK", 1000)


def rows(first, count):
    """Rows whose every field tells their number; each seventh ends its episode."""
    number = np.arange(first, first + count)
    obs = np.repeat(number[:, None], 3, 1).astype(np.float32)
    ends = number % 7 == 6
    return {
        "obs": obs,
        "next_obs": obs + np.where(ends, 0.5, 1).astype(np.float32)[:, None],
        "frame": np.repeat((number % 251)[:, None], 300, 1).astype(np.uint8),
        "reward": number.astype(np.float32),
        "terminated": ends,
        "truncated": np.zeros(count, bool),
    }


def make(kind, path, capacity=50):
    cls, options = KINDS[kind]
    return cls(capacity, FIELDS, storage="memmap", path=path, seed=5, **options)


def same_state(a, b):
    a, b = a.state(), b.state()
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)


def same_draws(a, b):
    for _ in range(3):
        x, y = a.sample(8), b.sample(8)
        for name, value in x.items():
            np.testing.assert_array_equal(value, y[name], err_msg=name)


def crash(buffer):
    """What is left when the process dies: the files as they are, and no lock."""
    buffer._storage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_it_behaves_like_a_buffer_in_memory(kind, tmp_path):
    cls, options = KINDS[kind]
    there, here = make(kind, tmp_path / "b"), cls(50, FIELDS, seed=5, **options)
    for first in range(0, 170, 17):
        there.add(**rows(first, 17))
        here.add(**rows(first, 17))
        same_draws(there, here)
    same_state(there, here)


@pytest.mark.parametrize("flushed", [0, 20, 50, 65])
@pytest.mark.parametrize("since", [0, 1, 13, 50, 120])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_it_is_as_flushed(kind, flushed, since, tmp_path):
    buffer = make(kind, tmp_path / "b")
    buffer.add(**rows(0, flushed))
    if flushed:
        buffer.sample(8)
    buffer.flush()
    before = buffer.__getstate__()
    for first in range(flushed, flushed + since, 9):
        buffer.add(**rows(first, min(9, flushed + since - first)))
    if isinstance(buffer, PrioritizedReplayBuffer) and len(buffer):
        buffer.update_priorities(np.arange(len(buffer)), np.full(len(buffer), 3.0))
    crash(buffer)
    reopened = type(buffer).open(tmp_path / "b")
    for name, value in before[1].items():
        np.testing.assert_array_equal(reopened.state()[name], value, err_msg=name)


def test_a_second_crash_before_the_next_flush_finds_the_same(tmp_path):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 60))
    buffer.flush()
    before = buffer.state()
    for first in (60, 200):
        buffer.add(**rows(first, 30))
        crash(buffer)
        buffer = ReplayBuffer.open(tmp_path / "b")
        np.testing.assert_array_equal(buffer.state()["data/obs"], before["data/obs"])


def test_a_journal_of_an_earlier_flush_is_not_put_back(tmp_path):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 50))
    buffer.flush()
    buffer.add(**rows(50, 30))
    kept = (tmp_path / "b" / "journal").read_bytes()
    buffer.flush()
    flushed = buffer.state()
    crash(buffer)
    (tmp_path / "b" / "journal").write_bytes(kept)  # died before it could be removed
    np.testing.assert_array_equal(
        ReplayBuffer.open(tmp_path / "b").state()["data/obs"], flushed["data/obs"]
    )


@pytest.mark.parametrize("left", [0, 3, 39, 60, 500])
def test_a_record_that_was_cut_off_is_not_put_back(left, tmp_path):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 50))
    buffer.flush()
    flushed = buffer.state()
    buffer._rows.announce(0, 50)  # kept, but died before it was overwritten
    crash(buffer)
    path = tmp_path / "b" / "journal"
    path.write_bytes(path.read_bytes()[:left])
    np.testing.assert_array_equal(
        ReplayBuffer.open(tmp_path / "b").state()["data/obs"], flushed["data/obs"]
    )


class Died(BaseException):
    """Stands for the death of the process."""


@pytest.mark.parametrize("kind", ["uniform", "single copy, prioritized"])
@pytest.mark.parametrize("step", range(9))
def test_a_death_within_a_flush_leaves_the_old_state_or_the_new(kind, step, tmp_path, monkeypatch):
    buffer = make(kind, tmp_path / "b")
    buffer.add(**rows(0, 70))
    buffer.flush()
    old = buffer.state()
    buffer.add(**rows(70, 30))
    new = buffer.state()
    left = [step]

    def dying(function):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] == -1:
                raise Died
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying(os.replace))
        patch.setattr(os, "fsync", dying(os.fsync))
        patch.setattr(memmap.MemMap, "_synchronize", dying(memmap.MemMap._synchronize))
        patch.setattr(memmap.Journal, "begin", dying(memmap.Journal.begin))
        died = False
        try:
            buffer.flush()
        except Died:
            died = True
    assert died == (step < 5)  # maps, file, rename, folder, journal
    crash(buffer)
    found = type(buffer).open(tmp_path / "b").state()
    expected = new if step > 2 else old
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


KILLED = """
    import os, signal, sys
    import numpy as np
    from loopless.replay import ReplayBuffer
    fields = {"x": ((1000,), np.int64)}
    buffer = ReplayBuffer(40, fields, storage="memmap", path=sys.argv[1])
    for step in range(100):
        buffer.add(x=np.full(1000, step))
        if step == 70:
            buffer.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_process_loses_nothing_that_it_flushed(tmp_path):
    path = tmp_path / "b"
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
    assert subprocess.run(program, check=False, timeout=120).returncode == -9
    with ReplayBuffer.open(path) as buffer:
        found = np.sort(buffer.state()["data/x"], axis=0)
    np.testing.assert_array_equal(found, np.repeat(np.arange(31, 71)[:, None], 1000, 1))


def try_to_open(path, answer):
    try:
        ReplayBuffer.open(path)
    except RuntimeError as error:
        answer.put(str(error))
    else:
        answer.put("opened")


@pytest.mark.slow
def test_two_processes_cannot_write_one_buffer(tmp_path):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    buffer = make("uniform", tmp_path / "b")
    buffer.flush()
    for expected in (f"is open in process {os.getpid()}", "opened"):
        child = context.Process(target=try_to_open, args=(tmp_path / "b", answer))
        child.start()
        assert expected in answer.get(timeout=120)
        child.join()
        buffer.close()


def test_nor_can_one_process_open_it_twice(tmp_path):
    with make("uniform", tmp_path / "b") as buffer:
        buffer.flush()
        with pytest.raises(RuntimeError, match="is open in process"):
            ReplayBuffer.open(tmp_path / "b")


FORKED = """
    import os, sys
    import numpy as np
    from loopless.replay import ReplayBuffer
    buffer = ReplayBuffer(40, {"x": ((), np.int64)}, storage="memmap", path=sys.argv[1])
    buffer.add(x=np.arange(20))
    buffer.flush()
    said, say = os.pipe()
    wait, go = os.pipe()
    if os.fork() == 0:
        try:
            buffer.add(x=1)
        except RuntimeError as error:
            os.write(say, str(error).encode())
        os.close(go)
        os.read(wait, 1)  # lives on while its parent opens the buffer again
        os._exit(0)
    os.close(wait)
    print(os.read(said, 1000).decode())
    buffer._storage.close()
    print(len(ReplayBuffer.open(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_fork_can_neither_write_nor_keep_the_lock(tmp_path):
    program = [sys.executable, "-c", textwrap.dedent(FORKED), str(tmp_path / "b")]
    done = subprocess.run(program, check=True, timeout=120, capture_output=True, text=True)
    assert "is a fork" in done.stdout
    assert done.stdout.endswith("\n20\n")


def test_a_closed_buffer_says_so(tmp_path):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 20))
    buffer.close()
    buffer.close()
    for call in (lambda: buffer.sample(4), lambda: buffer.add(**rows(0, 1)), buffer.flush):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    assert len(ReplayBuffer.open(tmp_path / "b")) == 20


def test_leaving_the_block_with_an_error_flushes_too(tmp_path):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 20))
    with pytest.raises(ZeroDivisionError), buffer:
        _ = 1 / 0
    assert len(ReplayBuffer.open(tmp_path / "b")) == 20


def test_restoring_into_files_is_undone_by_a_crash(tmp_path):
    buffer, other = make("uniform", tmp_path / "b"), ReplayBuffer(50, FIELDS)
    buffer.add(**rows(0, 65))
    buffer.flush()
    flushed = buffer.state()
    buffer.add(**rows(65, 10))  # blocks in the middle, which are then kept a second time
    other.add(**rows(500, 30))
    buffer.restore(other.state())
    same_state(buffer, other)
    crash(buffer)
    found = ReplayBuffer.open(tmp_path / "b").state()
    np.testing.assert_array_equal(found["data/obs"], flushed["data/obs"])


def test_a_disk_too_full_for_the_journal_changes_nothing(tmp_path, monkeypatch):
    buffer = make("uniform", tmp_path / "b")
    buffer.add(**rows(0, 50))
    buffer.flush()
    before = buffer.state()

    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            buffer.add(**rows(50, 20))
    for name, value in before.items():
        np.testing.assert_array_equal(buffer.state()[name], value, err_msg=name)
    buffer.add(**rows(50, 20))
    crash(buffer)
    found = ReplayBuffer.open(tmp_path / "b").state()
    np.testing.assert_array_equal(found["data/obs"], before["data/obs"])


def test_more_than_the_disk_holds_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ValueError, match=r"TB is free|GB is free"):
        ReplayBuffer(2**31, {"x": ((10**6,), np.uint8)}, storage="memmap", path=tmp_path / "b")
    assert not list((tmp_path / "b").glob("*.bin"))


def test_more_than_memory_goes_to_files(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10_000)
    with pytest.raises(ValueError, match='storage="memmap"'):
        ReplayBuffer(50, FIELDS)
    with make("uniform", tmp_path / "b") as buffer:
        buffer.add(**rows(0, 20))
        assert buffer.nbytes > 10_000


def test_bytes_are_said_aloud_from_a_gigabyte_up(capsys):
    ReplayBuffer(1000, FIELDS)
    assert capsys.readouterr().err == ""
    ReplayBuffer(2**20, {"x": ((1000,), np.uint8)})  # of which no page is touched
    assert "1,048,576 transitions take 1.0 GB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"storage": "memmap"}, "needs path"),
        ({"path": "x"}, "is for storage"),
        ({"storage": "disk", "path": "x"}, "choose memory or memmap"),
        ({"storage": None}, "choose memory or memmap"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        ReplayBuffer(10, FIELDS, **options)


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not empty"):
        make("uniform", tmp_path / "b")
    assert [item.name for item in (tmp_path / "b").iterdir()] == ["notes.txt"]


def test_a_missing_parent_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        make("uniform", tmp_path / "a" / "b")


@pytest.mark.parametrize("kind", ["uniform", "single copy, prioritized"])
def test_damaged_files_are_refused_and_stay_as_they_are(kind, tmp_path):
    with make(kind, tmp_path / "b") as buffer:
        buffer.add(**rows(0, 20))
    cls, path = type(buffer), tmp_path / "b"
    data = (path / "packed rows.bin").read_bytes()
    (path / "packed rows.bin").write_bytes(data[:-1])
    with pytest.raises(ValueError, match="damaged"):
        cls.open(path)
    (path / "packed rows.bin").write_bytes(data)
    state = (path / "buffer.safetensors").read_bytes()
    (path / "buffer.safetensors").write_bytes(state[:-20])
    with pytest.raises(ValueError, match=r"open: .* is not a complete buffer file"):
        cls.open(path)
    (path / "buffer.safetensors").write_bytes(state)
    assert len(cls.open(path)) == 20


def test_another_kind_of_buffer_is_refused(tmp_path):
    make("uniform", tmp_path / "b").close()
    with pytest.raises(ValueError, match="holds a ReplayBuffer"):
        PrioritizedReplayBuffer.open(tmp_path / "b")


def test_what_was_never_flushed_is_not_there(tmp_path):
    crash(make("uniform", tmp_path / "b"))
    with pytest.raises(FileNotFoundError, match="holds no flushed buffer"):
        ReplayBuffer.open(tmp_path / "b")


def test_a_copy_lies_in_memory(tmp_path):
    import copy

    with make("uniform", tmp_path / "b") as buffer:
        buffer.add(**rows(0, 20))
        twin = copy.deepcopy(buffer)
        same_state(buffer, twin)
        twin.add(**rows(20, 20))
        assert len(buffer) == 20


EPISODES = {"obs": ((2,), np.float32), "frame": ((300,), np.uint8)}


def episodic(path, capacity=200, **options):
    return EpisodicReplayBuffer(
        capacity, EPISODES, terminals="single", seed=3, storage="memmap", path=path, **options
    )


def add_episodes(buffer, lengths, first=0):
    """Rows of these lengths, whose steps tell their number; each fifth ends a segment."""
    for length in lengths:
        number = np.arange(first, first + length)
        buffer.add_episode(
            obs=np.repeat(number[:, None], 2, 1).astype(np.float32),
            frame=np.repeat((number % 251)[:, None], 300, 1).astype(np.uint8),
            terminals=number % 5 == 4,
        )
        first += length
    return first


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("since", [(), (11,), (30, 40, 50), (60, 60, 60, 60)])
@pytest.mark.parametrize("flushed", [(), (20, 7, 33), (70, 60, 50, 45, 30)])
def test_episodes_are_as_flushed_after_a_crash(flushed, since, weighted, tmp_path):
    buffer = episodic(tmp_path / "b")
    end = add_episodes(buffer, flushed)
    if flushed:
        buffer.sample(8, discount=0.9)
        if weighted:
            buffer.set_row_weights(np.arange(1.0, buffer.rows + 1))
            buffer.set_step_weights(np.arange(1.0, len(buffer) + 1))
    buffer.flush()
    before = buffer.state()
    add_episodes(buffer, since, end)
    crash(buffer)
    reopened = EpisodicReplayBuffer.open(tmp_path / "b")
    after = reopened.state()
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    twin = EpisodicReplayBuffer(200, EPISODES, terminals="single")
    twin.restore(before)
    if flushed:
        for x, y in zip(
            *(b.sample(16, discount=0.9).values() for b in (reopened, twin)), strict=True
        ):
            np.testing.assert_array_equal(x, y)


def test_a_closed_episodic_buffer_says_so(tmp_path):
    with episodic(tmp_path / "b") as buffer:
        add_episodes(buffer, (20,))
    with pytest.raises(RuntimeError, match="closed"):
        buffer.sample(4, discount=0.9)
    with pytest.raises(RuntimeError, match="closed"):
        add_episodes(buffer, (20,))
    assert len(EpisodicReplayBuffer.open(tmp_path / "b")) == 20


def test_more_episodes_than_memory_go_to_files(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10_000)
    with pytest.raises(ValueError, match=r'200 steps need .* storage="memmap"'):
        EpisodicReplayBuffer(200, EPISODES)
    with episodic(tmp_path / "b") as buffer:
        add_episodes(buffer, (20,))


def test_a_buffer_in_memory_has_nothing_to_flush():
    with pytest.raises(RuntimeError, match="is in memory"):
        ReplayBuffer(10, FIELDS).flush()
