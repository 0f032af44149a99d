"""Single-copy observations: what is drawn is what was added, at ends, seams and heads."""

import copy

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loopless import process
from loopless.reference.replay import TransitionList
from loopless.replay.host.packed import Successors
from loopless.replay.host.prioritized import PrioritizedReplayBuffer
from loopless.replay.host.uniform import ReplayBuffer

GAMMA = 0.9
OBSERVATION = {"near": ((2,), np.float32), "image": ((5, 60), np.uint8)}  # one packed, one apart
FIELDS = {
    "obs": OBSERVATION,
    "reward": ((), np.float64),
    "next_obs": OBSERVATION,
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}


def observation(number):
    image = np.full((5, 60), number % 251, np.uint8)
    return {"near": np.array([number, np.nan], np.float32), "image": image}


def stack(rows):
    if isinstance(rows[0], dict):
        return {name: stack([row[name] for row in rows]) for name in rows[0]}
    return np.stack([np.asarray(row) for row in rows])


def leaves(tree, prefix=""):
    flat = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= leaves(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


class Streams:
    """`envs` streams of transitions; every observation has a number of its own."""

    def __init__(self, envs):
        self.numbers, self.now = 0, [self.fresh() for _ in range(envs)]

    def fresh(self):
        self.numbers = getattr(self, "numbers", 0) + 1
        return self.numbers

    def step(self, ends):
        rows = []
        for env, end in enumerate(ends):
            before, after = self.now[env], self.fresh()
            rows.append(
                {
                    "obs": observation(before),
                    "reward": float(np.sin(before)),
                    "next_obs": observation(after),
                    "terminated": end == "terminated",
                    "truncated": end == "truncated",
                }
            )
            # "cut" is an end that nobody marked, such as rows that a caller left out
            self.now[env] = self.fresh() if end else after
        return rows


ENDS = st.sampled_from(["", "", "", "terminated", "truncated", "cut"])


def check(buffer, twin, n_step):
    size = len(buffer)
    if not size:
        return
    batch = leaves(buffer.sample(size, 3))
    slots = batch["indices"].reshape(-1)
    for k, slot in enumerate(slots.tolist()):
        wanted = leaves(twin.window(slot, n_step, GAMMA))
        for name in ("obs/near", "obs/image", "next_obs/near", "next_obs/image", "terminated"):
            got = batch[name].reshape(len(slots), *batch[name].shape[2:])[k]
            np.testing.assert_array_equal(got, wanted[name], err_msg=name)


class SingleCopyMachine(RuleBasedStateMachine):
    """Buffer and list of whole transitions, driven side by side."""

    kind = ReplayBuffer

    @initialize(capacity=st.sampled_from([3, 7, 11, 30]), envs=st.integers(1, 3),
                n=st.sampled_from([1, 3]))  # fmt: skip
    def start(self, capacity, envs, n):
        self.options = {"n_step": n, "gamma": GAMMA, "envs": envs, "single_copy": "obs"}
        self.buffer = self.kind(capacity, FIELDS, **self.options)
        self.streams, self.twin = Streams(envs), TransitionList(capacity, envs)

    @rule(data=st.data(), steps=st.integers(1, 12))
    def step(self, data, steps):
        envs = self.options["envs"]
        rows = []
        for _ in range(steps):
            ends = data.draw(st.lists(ENDS, min_size=envs, max_size=envs))
            rows.append(self.streams.step(ends))
        for row in rows:
            for transition in row:
                self.twin.add(transition)
        if envs == 1:
            self.buffer.add(**stack([row[0] for row in rows]))  # a piece of one stream at once
        else:
            for row in rows:
                self.buffer.add(**stack(row))

    @rule(end=ENDS)
    def one(self, end):
        if self.options["envs"] == 1:
            (row,) = self.streams.step([end])
            self.twin.add(row)
            self.buffer.add(**row)

    @rule()
    def restore(self):
        other = ReplayBuffer(self.buffer.capacity, FIELDS, **self.options)
        other.add(**stack(Streams(self.options["envs"]).step([""] * self.options["envs"])))
        state = self.buffer.state()
        other.restore(state)
        for name, value in other.state().items():
            np.testing.assert_array_equal(value, state[name], err_msg=name)
        self.buffer = other

    @invariant()
    def same(self):
        if hasattr(self, "buffer"):
            check(self.buffer, self.twin, self.options["n_step"])
            aside = self.buffer._successors
            assert aside.count == (aside.place >= 0).sum()
            used = aside.place[aside.place >= 0].tolist()
            assert sorted(used + aside.free[: aside.left].tolist()) == list(range(aside.free.size))


TestSingleCopy = SingleCopyMachine.TestCase
TestSingleCopy.settings = settings(max_examples=25, stateful_step_count=12)


def filled(steps, capacity=50, envs=2, end_every=10, kind=ReplayBuffer, **options):
    buffer = kind(capacity, FIELDS, envs=envs, single_copy="obs", **options)
    streams, twin = Streams(envs), TransitionList(capacity, envs)
    for t in range(steps):
        rows = streams.step(["truncated" if t % end_every == end_every - 1 else ""] * envs)
        buffer.add(**stack(rows))
        for row in rows:
            twin.add(row)
    return buffer, twin


def test_only_ends_and_the_newest_rows_are_kept_aside():
    buffer, twin = filled(100)
    check(buffer, twin, 1)
    ends = sum(row["truncated"] for _, row in twin.rows)
    assert buffer._successors.count == ends  # the last step is an end itself
    buffer, twin = filled(95)
    assert buffer._successors.count == sum(row["truncated"] for _, row in twin.rows) + 2


def test_a_long_piece_of_a_stream_needs_no_more_room_than_its_ends():
    buffer = ReplayBuffer(1000, FIELDS, single_copy="obs")
    streams = Streams(1)
    buffer.add(**stack([streams.step([""])[0] for _ in range(900)]))
    assert buffer._successors.count == 1
    assert buffer._successors.free.size == 16
    twice = ReplayBuffer(1000, FIELDS)
    assert buffer.nbytes < 0.6 * twice.nbytes


@pytest.mark.parametrize("capacity", [50, 51])
def test_e23_d3_the_newest_rows_at_the_seam_have_their_own_successors(capacity):
    for steps in range(23, 30):
        buffer, twin = filled(steps, capacity=capacity)
        check(buffer, twin, 1)


def test_priorities_and_out_go_with_single_copies():
    buffer, _ = filled(40, kind=PrioritizedReplayBuffer)
    out = buffer.sample(8, 2)
    for array in leaves(out).values():
        array[...] = 0
    other = copy.deepcopy(buffer)
    fresh = buffer.sample(8, 2)
    other.sample(8, 2, out=out)
    for name, array in leaves(fresh).items():
        np.testing.assert_array_equal(leaves(out)[name], array, err_msg=name)


def test_it_comes_back_from_a_file(tmp_path):
    buffer, twin = filled(47)
    buffer.save(tmp_path / "buffer")
    other = ReplayBuffer.load(tmp_path / "buffer")
    check(other, twin, 1)
    assert other._successors.count == buffer._successors.count


@pytest.mark.parametrize(
    "fields",
    [
        {"obs": ((2,), "float32")},
        {"next_obs": ((2,), "float32")},
        {"obs": ((2,), "float32"), "next_obs": ((2,), "float64")},
        {"obs": {"a": ((), "int8")}, "next_obs": {"b": ((), "int8")}},
    ],
)
def test_fields_that_are_not_alike_are_refused(fields):
    with pytest.raises(ValueError, match="single_copy='obs' needs the fields obs and next_obs"):
        ReplayBuffer(10, fields, single_copy="obs")


def test_no_room_aside_leaves_the_buffer_as_it_was(monkeypatch):
    buffer, twin = filled(20)
    rows = stack(Streams(2).step(["", ""]))
    buffer._successors.left = 0
    taken = buffer._successors.free.copy()
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 100)
    with pytest.raises(ValueError, match="kept aside need"):
        buffer.add(**rows)
    np.testing.assert_array_equal(buffer._successors.free, taken)
    check(buffer, twin, 1)


class ReadsAcross(Successors):
    """The next row's observation is taken for the successor, ends or not, as in SLM-Lab (D1)."""

    def gather(self, arrays, indices):
        kept, self.place = self.place, np.full_like(self.place, -1)
        super().gather(arrays, indices)
        self.place = kept


def test_a_next_state_read_across_an_end_is_caught():
    buffer, twin = filled(40)
    check(buffer, twin, 1)
    buffer._successors.__class__ = ReadsAcross
    with pytest.raises(AssertionError):
        check(buffer, twin, 1)
