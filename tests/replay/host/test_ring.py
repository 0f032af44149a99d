"""The uniform ring against a list of transitions: what is drawn is live, whole and unmixed."""

import copy
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loopless import process
from loopless.reference.replay import TransitionList
from loopless.replay.host.uniform import ReplayBuffer

GAMMA = 0.9
FIELDS = {
    "obs": {"near": ((3,), np.float32), "image": ((5, 60), np.uint8)},  # one packed, one apart
    "action": ((), np.int16),
    "reward": ((), np.float64),
    "next_obs": {"near": ((3,), np.float32), "image": ((5, 60), np.uint8)},
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}
SIZES = [1, 7, 11, 50]


def transition(number, end=""):
    """Transition `number` of a stream; every number that it holds is its own."""

    def observation(n):
        return {
            "near": np.array([n, 2 * n, -n], np.float32),
            "image": np.full((5, 60), n % 251, np.uint8),
        }

    return {
        "obs": observation(number),
        "action": np.int16(number),
        "reward": float(np.sin(number)),
        "next_obs": observation(number + 1000),
        "terminated": end == "terminated",
        "truncated": end == "truncated",
    }


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


def as_bytes(state):
    return {
        name: (v.dtype.name, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v
        for name, v in state.items()
    }


def filled(count, capacity=50, **options):
    """A buffer with transitions 0, 1, …, and its twin."""
    buffer = ReplayBuffer(capacity, FIELDS, **options)
    twin = TransitionList(capacity, options.get("envs", 1))
    rows = [transition(n) for n in range(count)]
    envs = options.get("envs", count)
    for first in range(0, count, envs):
        buffer.add(**stack(rows[first : first + envs]))
    for row in rows:
        twin.add(row)
    return buffer, twin


def check_batch(batch, twin, n_step=1):
    """Every row of a batch is what the twin has in that slot."""
    flat = {name: array.reshape(batch["indices"].size, *array.shape[batch["indices"].ndim :])
            for name, array in leaves(batch).items()}  # fmt: skip
    for k, slot in enumerate(flat["indices"].tolist()):
        wanted = leaves(twin.window(slot, n_step, GAMMA) if n_step > 1 else twin.at(slot))
        for name, array in flat.items():
            if name in ("indices", "weights"):
                continue
            if name in ("reward", "discount"):
                np.testing.assert_allclose(array[k], wanted[name], rtol=1e-12, atol=1e-14)
            else:
                np.testing.assert_array_equal(array[k], wanted[name], err_msg=name)


class RingMachine(RuleBasedStateMachine):
    """Buffer and list of transitions, driven side by side."""

    @initialize(
        capacity=st.sampled_from(SIZES), envs=st.sampled_from([1, 1, 3]), n=st.integers(1, 4)
    )
    def start(self, capacity, envs, n):
        self.envs, self.n = min(envs, capacity), n
        options = {"n_step": n, "gamma": GAMMA, "envs": self.envs, "seed": 3}
        self.buffer = ReplayBuffer(capacity, FIELDS, **options)
        self.twin, self.number = TransitionList(capacity, self.envs), 0

    def rows(self, ends):
        rows = [transition(self.number + k, end) for k, end in enumerate(ends)]
        self.number += len(rows)
        for row in rows:
            self.twin.add(row)
        return rows

    @rule(end=st.sampled_from(["", "", "terminated", "truncated"]))
    def add_one(self, end):
        rows = self.rows([end] * self.envs)
        self.buffer.add(**(rows[0] if self.envs == 1 else stack(rows)))

    @rule(ends=st.lists(st.sampled_from(["", "", "terminated", "truncated"]), max_size=60,
                        min_size=1))  # fmt: skip
    def add_many(self, ends):
        if self.envs == 1:
            self.buffer.add(**stack(self.rows(ends)))
        else:
            for end in ends[:8]:
                self.buffer.add(**stack(self.rows([end, "", end][: self.envs])))

    @rule(batch=st.integers(1, 9), batches=st.sampled_from([None, 1, 3]), m=st.integers(0, 9))
    def sample(self, batch, batches, m):
        if len(self.buffer) < batch:
            with pytest.raises(RuntimeError, match="fewer than"):
                self.buffer.sample(batch, batches)
            return
        drawn = self.buffer.sample(batch, batches, newest=min(m, batch))
        leading = (batch,) if batches is None else (batches, batch)
        assert drawn["indices"].shape == leading
        check_batch(drawn, self.twin, self.n)
        newest = drawn["indices"].reshape(-1, batch)[:, batch - min(m, batch) :]
        assert (newest == self.twin.newest(min(m, batch))).all()

    @rule()
    def restore(self):
        other = ReplayBuffer(
            self.buffer.capacity, FIELDS, n_step=self.n, gamma=GAMMA, envs=self.envs, seed=99
        )
        other.restore(self.buffer.state())
        assert as_bytes(other.state()) == as_bytes(self.buffer.state())
        self.buffer = other

    @invariant()
    def as_long(self):
        if hasattr(self, "buffer"):
            assert len(self.buffer) == len(self.twin.rows)


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=25, stateful_step_count=15)


def chi_square(counts, wanted):
    return float(((counts - wanted) ** 2 / wanted).sum())


def bound(cells):
    """Mean and four standard deviations of chi-square."""
    return cells - 1 + 4 * (2 * (cells - 1)) ** 0.5


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("count", [37, 50, 73])
def test_draws_are_uniform_by_chi_square(seed, count):
    buffer, _ = filled(count, seed=seed)
    drawn = buffer.sample(32, 1000)["indices"]
    size = min(50, count)
    counts = np.bincount(drawn.reshape(-1), minlength=size)
    assert chi_square(counts, 32_000 / size) < bound(size)


def test_a_slot_that_never_comes_out_is_caught_by_chi_square():
    buffer, _ = filled(50)
    buffer._size = 49
    counts = np.bincount(buffer.sample(32, 1000)["indices"].reshape(-1), minlength=50)
    assert chi_square(counts, 32_000 / 50) > 3 * bound(50)


def test_a_seed_gives_one_order_and_another_seed_another():
    draws = [filled(50, seed=seed)[0].sample(50)["indices"].tolist() for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]


def test_batches_in_one_call_are_the_batches_of_single_calls():
    first, second = filled(50)[0], filled(50)[0]
    together = first.sample(8, 5)
    single = stack([second.sample(8) for _ in range(5)])
    for name, array in leaves(together).items():
        np.testing.assert_array_equal(array, leaves(single)[name])


def test_results_are_fresh_contiguous_and_of_the_declared_dtypes():
    buffer, _ = filled(20)
    first = leaves(buffer.sample(4))
    kept = {name: array.copy() for name, array in first.items()}
    second = leaves(buffer.sample(4))
    assert not any(np.shares_memory(first[name], second[name]) for name in first)
    buffer.add(**stack([transition(n) for n in range(100, 150)]))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
    assert first["obs/near"].dtype == np.float32
    assert first["action"].dtype == np.int16
    assert first["terminated"].dtype == np.bool_
    assert first["indices"].dtype == np.int64


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("batches", [None, 4])
def test_out_is_written_as_fresh_arrays_would_be(n_step, batches):
    fresh, other = (filled(73, n_step=n_step, gamma=GAMMA)[0] for _ in range(2))
    out = other.sample(5, batches)
    wanted = [fresh.sample(5, batches) for _ in range(2)][1]
    assert other.sample(5, batches, out=out) is out
    for name, array in leaves(wanted).items():
        np.testing.assert_array_equal(leaves(out)[name], array)


def test_out_that_does_not_fit_is_refused_at_once_and_draws_nothing():
    buffer, _ = filled(20)
    out = buffer.sample(4)
    before = as_bytes(buffer.state())
    out["obs"]["near"] = out["obs"]["near"].astype(np.float64)
    out["reward"] = out["reward"][::2]
    out["action"].flags.writeable = False
    out["terminated"] = [True] * 4
    out["extra"] = out.pop("truncated")
    with pytest.raises(ValueError, match="truncated is missing") as caught:
        buffer.sample(4, out=out)
    for text in ("extra is unknown", "out['obs/near']", "out['reward']", "out['action'] is not",
                 "out['terminated'] is not a NumPy array"):  # fmt: skip
        assert text in str(caught.value)
    assert as_bytes(buffer.state()) == before


@pytest.mark.parametrize("out", [[1], 3])
def test_out_that_is_no_dict_is_refused(out):
    with pytest.raises(TypeError, match="out must be a dict of arrays"):
        filled(20)[0].sample(4, out=out)


def test_more_rows_than_capacity_in_one_call_keep_the_last():
    buffer, twin = filled(23, capacity=7)
    check_batch(buffer.sample(7, 20), twin)
    assert len(buffer) == 7
    buffer.add(**transition(23))
    assert buffer.sample(7, newest=2)["action"][-2:].tolist() == [22, 23]


def test_no_rows_are_no_rows():
    buffer, _ = filled(5)
    before = as_bytes(buffer.state())
    buffer.add(**{name: value[:0] if isinstance(value, np.ndarray)
                  else {inner: array[:0] for inner, array in value.items()}
                  for name, value in stack([transition(0)]).items()})  # fmt: skip
    assert as_bytes(buffer.state()) == before


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "complex64", "complex128", "longdouble"]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (2, 7), (0,), (300,)])
def test_every_dtype_comes_back_bit_for_bit(shape):
    generator = np.random.default_rng(0)
    fields = {name: (shape, name) for name in DTYPES}
    data = {
        name: generator.integers(0, 2, (9, *shape)).astype(bool) if name == "bool"
        else generator.normal(0, 50, (9, *shape)).astype(np.int64).astype(name)
        for name in DTYPES
    }  # fmt: skip
    buffer = ReplayBuffer(9, fields)
    buffer.add(**data)
    batch = buffer.sample(9, 3)
    for name in DTYPES:
        assert batch[name].dtype == name
        np.testing.assert_array_equal(batch[name], data[name][batch["indices"]])
    assert all(view.flags.aligned for view in buffer._rows.views.values())


def test_fields_from_an_example():
    buffer = ReplayBuffer.like(transition(3), capacity=10, seed=4)
    assert repr(buffer).startswith("ReplayBuffer(0 of 10 transitions, 6.")
    assert "obs/near (3,) float32" in repr(buffer)
    assert "kB" in repr(buffer)
    buffer.add(**transition(3))
    assert leaves(buffer.sample(1))["obs/image"].dtype == np.uint8
    assert ReplayBuffer.like({"x": 1.5, "y": True}, 3)._fields["x"].dtype == "float64"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy,
                                       lambda b: pickle.loads(pickle.dumps(b))])  # fmt: skip
def test_a_copy_goes_on_alone(duplicate):
    buffer, twin = filled(73, n_step=2, gamma=GAMMA)
    other = duplicate(buffer)
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    before = as_bytes(buffer.state())
    other.add(**transition(999))
    assert as_bytes(buffer.state()) == before
    assert other.sample(1, newest=1)["action"] == 999
    check_batch(buffer.sample(20), twin, 2)


# n-step windows, by the numbers of the Q-learning spec


def stream(rewards, ends, capacity=10, n_step=3, **options):
    """A scalar stream: observations count 0, 1, …, final ones are 100 and more."""
    one = {"obs": ((), "float32"), "reward": ((), "float64"), "next_obs": ((), "float32"),
           "terminated": ((), "bool"), "truncated": ((), "bool")}  # fmt: skip
    buffer = ReplayBuffer(capacity, one, n_step=n_step, gamma=GAMMA, **options)
    for t, (reward, end) in enumerate(zip(rewards, ends, strict=True)):
        buffer.add(
            obs=float(t),
            reward=reward,
            next_obs=100.0 + t if end else t + 1.0,
            terminated=end == "terminated",
            truncated=end == "truncated",
        )
    return buffer


def row_from(buffer, obs):
    batch = buffer.sample(len(buffer), 50)
    chosen = np.flatnonzero(batch["obs"].reshape(-1) == obs)
    return {name: array.reshape(-1)[chosen[0]] for name, array in batch.items()}


def test_e5_a_window_stops_at_a_terminated_step():
    row = row_from(stream([1.0, 2.0, 50.0, 60.0], ["", "terminated", "", ""]), 0)
    assert row["reward"] == pytest.approx(2.8, rel=1e-12)
    assert row["terminated"]
    assert row["discount"] == pytest.approx(0.81, rel=1e-12)  # terminated is kept apart
    assert row["next_obs"] == 101


def test_e6_a_window_stops_at_a_truncated_step_and_bootstraps_from_its_final_observation():
    row = row_from(stream([1.0, 2.0, 50.0, 60.0], ["", "truncated", "", ""]), 0)
    assert row["reward"] == pytest.approx(2.8, rel=1e-12)
    assert row["discount"] == pytest.approx(0.81, rel=1e-12)
    assert row["next_obs"] == 101
    assert row["truncated"]
    assert not row["terminated"]


@pytest.mark.parametrize("count", [4, 10, 13])
def test_e7_windows_at_the_head_are_shortened(count):
    buffer = stream([1.0] * count, [""] * count)
    for age, reward, discount in ((1, 1.0, 0.9), (2, 1.9, 0.81), (3, 2.71, 0.729)):
        row = row_from(buffer, count - age)
        assert row["reward"] == pytest.approx(reward, rel=1e-12)
        assert row["discount"] == pytest.approx(discount, rel=1e-12)
        assert row["next_obs"] == min(count, count - age + 3)


@pytest.mark.parametrize("n_step", [1, 3])
def test_e23_the_item_at_the_seam_has_its_own_successor(n_step):
    ends = [""] * 9 + ["truncated"]
    buffer = stream([1.0] * 10, ends, n_step=n_step)
    assert row_from(buffer, 9)["next_obs"] == 109
    buffer.add(obs=10.0, reward=1.0, next_obs=11.0, terminated=False, truncated=False)
    assert row_from(buffer, 9)["next_obs"] == 109
    assert row_from(buffer, 10)["next_obs"] == 11


def test_e24_what_is_not_added_is_not_there():
    """A vector env's reset steps are left out by a mask; the count is that of real steps."""
    buffer = ReplayBuffer(50, {"obs": ((), "int64")})
    real = np.array([True, False, True, True])
    for t in range(5):
        buffer.add(obs=np.arange(4)[real] + 4 * t)
    assert len(buffer) == 15
    assert not np.isin(buffer.sample(15, 100)["obs"] % 4, 1).any()


def test_e25_images_come_back_exactly():
    image = np.zeros((84, 84), np.uint8)
    image[::2] = 255
    buffer = ReplayBuffer(3, {"image": ((84, 84), np.uint8)})
    buffer.add(image=np.stack([image, 255 - image]))
    batch = buffer.sample(2, 10)
    np.testing.assert_array_equal(batch["image"], np.stack([image, 255 - image])[batch["indices"]])


def test_e26_large_and_odd_numbers_are_kept():
    buffer = ReplayBuffer(2, {"obs": ((2,), np.float32)})
    buffer.add(obs=np.array([70000.0, 2049.0], np.float32))
    assert buffer.sample(1)["obs"].tolist() == [[70000.0, 2049.0]]


# Refusals


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"action": 1.5}, ValueError, "action contains 1.5, which int16 cannot hold"),
        ({"action": 70_000.0}, ValueError, "action contains 70000.0, which int16 cannot hold"),
        ({"reward": np.zeros(2)}, ValueError, r"reward has shape \(2,\), expected \(\)"),
        ({"rewards": 0.0}, ValueError, r"rewards is unknown \(did you mean reward\?\)"),
        ({"action": np.int64(70_000)}, TypeError, "action has dtype int64"),
        ({"action": 70_000}, ValueError, "70000, which int16 cannot hold"),
        ({"terminated": 0.5}, ValueError, "terminated contains numbers other than 0 and 1"),
        ({"obs": {"near": np.zeros(3, np.float32)}}, ValueError, "obs/image is missing"),
        ({"obs": {"near": [1.0, [2.0]], "image": transition(0)["obs"]["image"]}}, ValueError,
         "obs/near is not an array"),
    ],
)  # fmt: skip
def test_a_wrong_transition_is_refused_and_nothing_is_added(changes, error, text):
    buffer, _ = filled(5)
    before = as_bytes(buffer.state())
    with pytest.raises(error, match=text):
        buffer.add(**(transition(1) | changes))
    assert as_bytes(buffer.state()) == before


def test_all_that_is_wrong_is_said_at_once():
    buffer, _ = filled(5)
    wrong = stack([transition(n) for n in range(4)])
    wrong["action"] = wrong["action"][:3]
    wrong["reward"] = wrong["reward"].astype(np.complex128)
    del wrong["truncated"]
    wrong["obs"]["near"] = wrong["obs"]["near"].astype(np.float64)
    with pytest.raises(ValueError, match=r"truncated is missing.*unchanged") as caught:
        buffer.add(**wrong)
    assert "terminated" not in str(caught.value)  # which is as it should be
    for text in ("action has shape (3,)", "reward has dtype complex128", "obs/near has dtype"):
        assert text in str(caught.value)


GOOD = {"capacity": 10, "fields": FIELDS}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"capacity": 0}, "capacity must be an integer of at least 1"),
        ({"capacity": 2.0}, "capacity must be an integer"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"fields": {}}, "fields is empty"),
        ({"fields": {"indices": ((), "int64")}}, "a name that the buffer uses itself"),
        ({"fields": {"x": ((), "str")}}, "x is"),
        ({"fields": {"x": ((-1,), "int8")}}, "negative size"),
        ({"envs": 11}, "must be from envs=11"),
        ({"n_step": 0}, "n_step must be an integer of at least 1"),
        ({"n_step": 2}, "needs gamma from 0 to 1; received None"),
        ({"n_step": 2, "gamma": 1.5}, "needs gamma from 0 to 1; received 1.5"),
        ({"n_step": 2, "gamma": 0.9, "fields": {"reward": ((), "int64")}},
         "needs the field reward, .* float32 or float64; .*terminated.*truncated.*next_obs"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        ReplayBuffer(**(GOOD | changes))


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 10_000_000)
    fields = {"obs": ((4, 84, 84), np.uint8), "next_obs": ((4, 84, 84), np.uint8)}
    with pytest.raises(ValueError, match=re.escape("1,000,000 transitions need 56.4 GB")):
        ReplayBuffer(1_000_000, fields)
    assert ReplayBuffer(100, fields).nbytes == 100 * 2 * 4 * 84 * 84


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((0,), ValueError, "batch_size must be an integer of at least 1"),
        ((2.5,), ValueError, "batch_size must be an integer"),
        (([3],), ValueError, "batch_size must be an integer"),
        ((4, 0), ValueError, "batches must be an integer of at least 1"),
        ((21,), RuntimeError, "holds 20 transitions, fewer than batch_size=21"),
    ],
)
def test_wrong_draws_are_refused(arguments, error, text):
    buffer, _ = filled(20)
    with pytest.raises(error, match=text):
        buffer.sample(*arguments)


@pytest.mark.parametrize("newest", [-1, 5, None, True, 1.0])
def test_wrong_numbers_of_newest_rows_are_refused(newest):
    with pytest.raises(ValueError, match="newest"):
        filled(20)[0].sample(4, newest=newest)


def test_an_empty_buffer_says_so():
    with pytest.raises(RuntimeError, match="holds 0 transitions"):
        ReplayBuffer(3, FIELDS).sample(1)


def test_streams_bring_one_row_each():
    buffer = ReplayBuffer(10, FIELDS, n_step=2, gamma=GAMMA, envs=3)
    with pytest.raises(ValueError, match=r"with envs=3 every call brings \[3, ...\]"):
        buffer.add(**stack([transition(n) for n in range(6)]))
    with pytest.raises(ValueError, match="with envs=3"):
        buffer.add(**transition(0))
    assert len(buffer) == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"capacity": 51}, "the state has 51 capacity, the buffer 50"),
        ({"size": 60}, "head 20 and size 60 do not fit"),
        ({"head": 3}, "head 3 and size 20 do not fit"),
        ({"random": np.zeros(3, np.uint64)}, "random must be an array"),
        ({"data/action": np.zeros(20, np.int32)}, "action has dtype int32"),
        ({"data/action": np.zeros(19, np.int16)}, "action has shape"),
        ({"more": 1}, "more is unknown"),
    ],
)
def test_a_wrong_state_changes_nothing(changes, text):
    buffer, _ = filled(20)
    before = as_bytes(buffer.state())
    with pytest.raises((ValueError, TypeError), match=text):
        buffer.restore(buffer.state() | changes)
    assert as_bytes(buffer.state()) == before


def test_another_shape_is_refused():
    buffer, _ = filled(20)
    other = ReplayBuffer(50, FIELDS | {"reward": ((), np.float32)})
    with pytest.raises(TypeError, match="reward has dtype float64, expected float32"):
        other.restore(buffer.state())
    assert len(other) == 0


# Broken copies, which the checks above must catch


class StaleSlot(ReplayBuffer):
    """The next observation keeps what an overwritten transition left there."""

    def add(self, **row):
        if len(self) == self.capacity:
            old = self._rows.views["next_obs/near"][self._head].copy()
            row["next_obs"] = row["next_obs"] | {"near": old}
        super().add(**row)


class HalfPrecision(ReplayBuffer):
    """Observations pass through float16."""

    def add(self, **row):
        with np.errstate(over="ignore"):
            near = row["obs"]["near"].astype(np.float16).astype(np.float32)
        super().add(**(row | {"obs": row["obs"] | {"near": near}}))


class CrossingWindows(ReplayBuffer):
    """Windows do not stop at truncations."""

    def _gather(self, plan, block, arrays):
        kept = self._rows.views["truncated"]
        self._rows.views["truncated"] = np.zeros(self.capacity, bool)
        super()._gather(plan, block, arrays)
        self._rows.views["truncated"] = kept


class PastTheHead(ReplayBuffer):
    """Windows go on from the newest row to the oldest."""

    def _gather(self, plan, block, arrays):
        kept, self._head = self._head, (self._head - 3) % self.capacity
        super()._gather(plan, block, arrays)
        self._head = kept


@pytest.mark.parametrize("broken", [StaleSlot, HalfPrecision, CrossingWindows, PastTheHead])
def test_broken_copies_are_caught(broken):
    def run(kind):
        n_step = 3 if kind in (CrossingWindows, PastTheHead) else 1
        buffer = kind(11, FIELDS, n_step=n_step, gamma=GAMMA)
        twin = TransitionList(11)
        for n in range(2040, 2070):
            row = transition(n, "truncated" if n % 4 == 0 else "")
            twin.add(row)
            buffer.add(**row)
        check_batch(buffer.sample(11, 20), twin, n_step)

    run(ReplayBuffer)
    with pytest.raises(AssertionError):
        run(broken)


@pytest.mark.slow
def test_declaring_and_adding_does_not_import_numba():
    code = (
        "import sys; from loopless.replay.host.uniform import ReplayBuffer; "
        "b = ReplayBuffer(3, {'x': ((), 'int64')}); b.add(x=1); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
