"""The device's episodic buffer: segments, the row ring, and its law, cell by cell."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from jax import lax
from support.device_buffers import MASK, compiled_text, copies, words_of
from support.episodes import HORIZONS, ROWS, cells, fits

from loopless import process
from loopless.reference import episodic as reference
from loopless.replay.device import EpisodicBuffer
from loopless.replay.device.episodes import draw_gaps, horizons
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

pytestmark = pytest.mark.slow  # XLA compiles a program for nearly every test

KEY = jax.random.key(0)
DRAWS = 100_000
LENGTH = 9  # of the padded rows of most tests
FIELDS = {"obs": ((2,), np.int32)}
CONVENTIONS = ["double", "single", "none"]
LAWS = ["episode", "transition"]

add = jax.jit(
    lambda buffer, state, row, marks, length, valid=None: buffer.add(
        state, row, terminals=marks, length=length, valid=valid
    ),
    static_argnums=0,
)
draw = jax.jit(  # discount and cap are traced: each is a draw by itself, not a program
    lambda buffer, state, key, count, discount, cap=2**30: buffer.sample(
        state, key, count, discount=discount, max_horizon=cap
    ),
    static_argnums=(0, 3),
)

read = jax.jit(
    lambda buffer, state, places: buffer.layout.read(
        state.packed, state.large, places, ["obs", "action"]
    ),
    static_argnums=0,
)


def padded(row, value, length=LENGTH):
    """A list as an array of fixed length, and rubbish where it has ended."""
    return np.array([*row, *[value] * (length - len(row))])


def filled(rows=ROWS, **options):
    """The rows of the host's tests, each observation (row, step)."""
    buffer = EpisodicBuffer(sum(map(len, rows)), FIELDS)
    state = buffer.init()
    for e, row in enumerate(rows):
        obs = np.stack([np.full(LENGTH, e), np.arange(LENGTH)], 1).astype(np.int32)
        state = add(buffer, state, {"obs": obs}, padded(row, 1), len(row))
    return dataclasses.replace(buffer, **options), state


def host(batch):
    return {name: np.asarray(array) for name, array in batch.items()}


# ── Where segments end ─────────────────────────────────────────────────────────────────────────

found = jax.jit(horizons, static_argnums=2)


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(
    marks=st.lists(st.booleans(), min_size=1, max_size=12),
    valid=st.lists(st.booleans(), min_size=12, max_size=12),
    whole=st.booleans(),
)
def test_horizons_are_those_of_looking_ahead(convention, marks, valid, whole):
    valid = [True] * 12 if whole else valid
    ahead, sound = found(padded(marks, True, 12), len(marks), convention, np.array(valid))
    try:
        wanted = reference.horizons(marks, convention, valid[: len(marks)])
    except ValueError:
        assert not sound
        return
    assert sound
    assert ahead.tolist() == padded(wanted, 0, 12).tolist()


@pytest.mark.parametrize(
    ("marks", "wanted"),
    [
        ([0, 0], [1, 0]),  # 1
        ([0, 0, 1, 1, 0, 0], [3, 2, 1, 0, 1, 0]),  # 3, 4, 5
        ([1, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0]),  # 6
        ([0, 0, 0, 1], [3, 2, 1, 0]),  # 7: clipped by the row's end
        ([0] * 6, [5, 4, 3, 2, 1, 0]),  # 8
    ],
)
def test_cases_1_to_8_of_double_marks(marks, wanted):
    ahead, sound = found(padded(marks, 1, 12) > 0, len(marks), "double")
    assert sound
    assert ahead[: len(marks)].tolist() == wanted


def test_case_9_ten_thousand_segments_in_a_row():
    marks = np.tile([False, False, True, True], 10_001)
    ahead, sound = found(marks, len(marks), "double")
    assert sound
    assert ahead.tolist() == [3, 2, 1, 0] * 10_001


# ── The ring of rows ───────────────────────────────────────────────────────────────────────────

MARKS = st.lists(st.booleans(), min_size=1, max_size=LENGTH)
CONFIGS = [(9, "double", 0), (23, "double", 3), (23, "single", 0)]


class DeviceEpisodesMachine(RuleBasedStateMachine):
    """State and list of rows, driven side by side: every row, start and horizon is looked at."""

    @initialize(config=st.sampled_from(CONFIGS))
    def start(self, config):
        capacity, convention, max_rows = config
        fields = {"obs": ((), np.int32), "action": ((3,), np.float32)}
        self.buffer = EpisodicBuffer(capacity, fields, convention, max_rows=max_rows)
        self.state, self.next, self.refused = self.buffer.init(), 1, 0
        self.rows, self.cursor = [], 0

    def row(self, marks, valid):
        """A padded row of new numbers; the list's own account of what must go for it."""
        obs = np.arange(self.next, self.next + LENGTH, dtype=np.int32)
        self.next += LENGTH
        length, begin = len(marks), self.cursor
        try:
            horizons = reference.horizons(marks, self.buffer.terminals, valid[:length])
        except ValueError:
            horizons = [0]
        if not any(horizons):
            self.refused += 1
        else:
            if begin + length > self.buffer.capacity:
                while self.rows and self.rows[0][0] >= begin:
                    self.rows.pop(0)
                begin = 0
            while self.rows and begin <= self.rows[0][0] < begin + length:
                self.rows.pop(0)
            self.rows = [*self.rows, (begin, obs[:length].tolist(), horizons)]
            self.rows = self.rows[-self.buffer.max_rows :]
            self.cursor = begin + length
        return {"obs": obs, "action": np.repeat(obs[:, None], 3, 1).astype(np.float32)}

    @rule(
        marks=MARKS,
        valid=st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH),
        whole=st.booleans(),
    )
    def add_row(self, marks, valid, whole):
        valid = [True] * LENGTH if whole else valid
        row = self.row(marks, valid)
        args = padded(marks, True), len(marks), np.array(valid)
        self.state = add(self.buffer, self.state, row, *args)

    @rule(rows=st.lists(MARKS, min_size=4, max_size=4))
    def add_rows(self, rows):
        made = [self.row(marks, [True] * LENGTH) for marks in rows]
        block = {name: np.stack([row[name] for row in made]) for name in made[0]}
        marks = np.stack([padded(marks, True) for marks in rows])
        lengths = np.array([len(marks) for marks in rows])
        self.state = add(self.buffer, self.state, block, marks, lengths)

    @invariant()
    def same_rows(self):
        if not hasattr(self, "state"):
            return
        state, capacity = self.state, self.buffer.capacity
        assert int(state.refused) == self.refused
        assert int(state.rows) == len(self.rows)
        data = {n: np.asarray(x) for n, x in read(self.buffer, state, np.arange(capacity)).items()}
        table, pairs = np.asarray(state.table), np.asarray(state.pairs)
        for e, (begin, obs, ahead) in enumerate(self.rows):
            line = table[(int(state.oldest) + e) % self.buffer.max_rows]
            offset, length, first, count = line.tolist()
            assert (offset, length) == (begin, len(obs))
            assert data["obs"][begin : begin + length].tolist() == obs
            assert (data["action"][begin : begin + length] == np.array(obs)[:, None]).all()
            starts = [[begin + t, n] for t, n in enumerate(ahead) if n]
            assert pairs[(first + np.arange(count)) % capacity].tolist() == starts


TestDeviceEpisodes = DeviceEpisodesMachine.TestCase
TestDeviceEpisodes.settings = settings(max_examples=25, stateful_step_count=12)


def test_a_row_that_cannot_be_added_changes_nothing_but_the_count():
    buffer, state = filled()
    obs = np.full((LENGTH, 2), 50, np.int32)
    for marks, length in (([0, 1, 0, 0], 4), ([0], 1), ([1, 1], 0)):
        after = add(buffer, state, {"obs": obs}, padded(marks, 0), length)
        assert int(after.refused) == 1
        for one, other in zip(
            jax.tree.leaves(state[:-1]), jax.tree.leaves(after[:-1]), strict=True
        ):
            np.testing.assert_array_equal(one, other)


# ── The law ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("discount", [0.0, 0.2, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("law", LAWS)
def test_every_pair_is_as_likely_as_enumerated_in_float32(law, discount):
    with jax.enable_x64(False):
        buffer, state = filled(law=law)
        batch = host(draw(buffer, state, KEY, DRAWS, discount))
    assert batch["gap"].dtype == batch["indices"].dtype == np.int32
    assert fits(cells(batch), reference.pair_probabilities(HORIZONS, discount, law))


@pytest.mark.parametrize("cap", [1, 2, 3, 100])
def test_every_pair_is_as_likely_as_enumerated_under_a_cap(cap):
    with jax.enable_x64(False):
        batch = host(draw(*filled(), KEY, DRAWS, 0.9, cap))
    assert fits(cells(batch), reference.pair_probabilities(HORIZONS, 0.9, max_horizon=cap))


@pytest.mark.parametrize("law", LAWS)
def test_starts_follow_the_law_of_starts(law):
    buffer, state = filled(law=law)
    batch = jax.jit(buffer.sample_starts, static_argnums=(2, 3))(state, KEY, 1000, 100)
    assert batch["obs"].shape == (100, 1000, 2)
    rows, counts = np.unique(batch["obs"].reshape(-1, 2), axis=0, return_counts=True)
    drawn = {(int(r), int(t), 1): int(count) for (r, t), count in zip(rows, counts, strict=True)}
    assert fits(drawn, reference.pair_probabilities(HORIZONS, 0.0, law))
    assert "next_obs" not in batch


def test_goals_are_later_states():
    buffer, state = filled()
    goals = jax.jit(lambda state: buffer.sample_goals(state, KEY, 1000, discount=0.9))
    batch = host(goals(state))
    assert "next_obs" not in batch
    law = reference.pair_probabilities(HORIZONS, 0.9)
    assert not set(cells(batch, "goal")) - set(law)


def test_the_two_laws_are_told_apart():
    counts = cells(host(draw(*filled(law="episode"), KEY, DRAWS, 0.9)))
    assert not fits(counts, reference.pair_probabilities(HORIZONS, 0.9, "transition"))


def with_horizons(change):
    """A state whose horizons went wrong: `change` makes them of marks, row by row."""
    buffer, state = filled()
    wrong = [n for row in ROWS for n in change(row)]
    room = np.minimum(wrong, len(wrong) - 1 - np.arange(len(wrong)))
    starts, ends = np.flatnonzero(room > 0), np.cumsum([0, *map(len, ROWS)])
    pairs, table = np.array(state.pairs), np.array(state.table)
    pairs[: len(starts)] = np.stack([starts, room[starts]], 1)
    before = np.searchsorted(starts, ends)
    table[: len(ROWS), 2], table[: len(ROWS), 3] = before[:-1], np.diff(before)
    return buffer, state._replace(pairs=jnp.array(pairs), table=jnp.array(table))


MUTANTS = {
    "the legacy crossing": reference.legacy_horizons,
    "one too far": lambda row: [n + 1 for n in reference.horizons(row, "double")],
    "one too few": lambda row: [max(n - 1, 0) for n in reference.horizons(row, "double")],
    "marks unseen": lambda row: reference.horizons([0] * len(row), "double"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_chi_square_rejects_wrong_horizons(name):
    law = reference.pair_probabilities(HORIZONS, 0.9)
    right = with_horizons(lambda row: reference.horizons(row, "double"))
    assert fits(cells(host(draw(*right, KEY, DRAWS, 0.9))), law)
    assert not fits(cells(host(draw(*with_horizons(MUTANTS[name]), KEY, DRAWS, 0.9))), law)


def test_a_stale_start_after_an_overwrite_is_caught():
    rows = [[0] * 5, [0] * 9, [0] * 6]  # the third takes the place of the first, and more
    buffer, state = EpisodicBuffer(14, FIELDS, terminals="none"), None
    states = [buffer.init()]
    for e, row in enumerate(rows):
        obs = np.stack([np.full(LENGTH, e), np.arange(LENGTH)], 1).astype(np.int32)
        states.append(add(buffer, states[-1], {"obs": obs}, padded(row, 1), len(row)))
    state = states[-1]
    law = {(2, t, k): p for (_, t, k), p in reference.pair_probabilities(
        [reference.horizons(rows[2], "none")], 0.9).items()}  # fmt: skip
    assert fits(cells(host(draw(buffer, state, KEY, DRAWS, 0.9))), law)
    stale = state._replace(oldest=states[2].oldest, rows=states[2].rows + 1)
    assert not fits(cells(host(draw(buffer, stale, KEY, DRAWS, 0.9))), law)


ENDS = words_of([0, 1, 2**32 - 1, 2**32, MASK - 2**11, MASK])


NS = np.array([1, 2, 10, 10**6, 2**31 - 2])
ROOM = np.repeat(NS[:, None], 6, 1).astype(np.int32)
AT_ENDS = np.repeat(np.asarray(ENDS)[:, None], 5, 1)  # [2, 5 n, 6 ends]
far, traced = jax.jit(draw_gaps, static_argnums=2), jax.jit(draw_gaps)


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("discount", [1e-6, 0.5, 0.999999, np.nextafter(1.0, 0.0)])
def test_case_14_both_ends_of_the_words_stay_within_n(discount, x64):
    with jax.enable_x64(x64):
        k = np.asarray(far(AT_ENDS, ROOM, discount)).astype(int) - 1
    assert ((k >= 0) & (k < NS[:, None])).all()
    assert not k[:, -1].any()  # u = 1
    if x64:
        assert (k[:, 0] == int(np.floor(np.log(2.0**-53) / np.log(discount))) % NS).all()


def test_case_14_uniform_gaps_reach_both_ends():
    k = np.asarray(far(AT_ENDS, ROOM, 1.0)).astype(int) - 1
    assert (k[:, 0] == 0).all()
    assert (k[:, -1] == NS - 1).all()


@pytest.mark.parametrize("discount", [1e-6, 0.2, 0.9, 0.999999])
def test_case_13_gaps_given_n_lie_close_to_their_distribution_in_float32(discount):
    sizes = np.array([[1], [3], [10**6]])
    with jax.enable_x64(False):
        words = jax.random.bits(KEY, (2, 3, 50_000), jnp.uint32)
        room = np.repeat(sizes, 50_000, 1).astype(np.int32)
        drawn = np.sort(np.asarray(far(words, room, discount)), 1).astype(int) - 1
    for k, n in zip(drawn, sizes[:, 0], strict=True):
        at_most = np.searchsorted(k, k, side="right") / k.size
        law = np.expm1((k + 1) * np.log(discount)) / np.expm1(n * np.log(discount))
        assert np.abs(at_most - law).max() < 2.5 / k.size**0.5


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("discount", [0.0, 0.2, 0.99, 1.0])
def test_a_traced_discount_draws_what_a_number_draws(discount, x64):
    with jax.enable_x64(x64):
        words, room = (
            jax.random.bits(KEY, (2, 500), jnp.uint32),
            np.arange(500, dtype=np.int32) % 20,
        )
        drawn, wanted = traced(words, room, jnp.array(discount)), far(words, room, discount)
    assert (np.asarray(drawn) == np.asarray(wanted)).mean() > 0.99  # log may differ in a last bit
    assert ((np.asarray(drawn) >= 1) == (room > 0)).all()


def test_an_empty_buffer_gives_gaps_of_0():
    buffer = EpisodicBuffer(sum(map(len, ROWS)), FIELDS)
    batch = draw(buffer, buffer.init(), KEY, DRAWS, 0.9)
    assert not any(array.any() for array in batch.values())
    assert not buffer.can_sample(buffer.init())


# ── Refusals, bytes, files from the host ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 1}, "capacity must be an integer of at least 2"),
        ({"capacity": 2**31}, "must be from 2 to 2³¹ − 1"),
        ({"fields": {"x": ((), np.int32)}}, 'fields has no "obs"'),
        ({"fields": {"obs": ((), np.int32), "goal": ((), np.int32)}}, "the buffer uses itself"),
        ({"terminals": "both"}, "terminals='both' is unknown"),
        ({"law": "uniform"}, "law='uniform' is unknown"),
        ({"max_rows": -1}, "max_rows must be an integer of at least 0"),
    ],
)
def test_a_wrong_declaration_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EpisodicBuffer(**({"capacity": 20, "fields": FIELDS} | options))


def test_all_that_is_wrong_with_a_row_is_said_at_once():
    buffer = EpisodicBuffer(5, FIELDS)
    with pytest.raises(ValueError, match=r"EpisodicBuffer\.add: ") as caught:
        buffer.add(buffer.init(), {"obs": np.zeros((6, 2), np.int32)}, valid=np.ones(4), length=2.5)
    for part in ("do not fit a capacity of 5", "terminals is missing", "valid has shape (4,)",
                 "length must be an integer"):  # fmt: skip
        assert part in str(caught.value)


@pytest.mark.parametrize("discount", [-0.1, 1.1, np.nan])
def test_a_discount_outside_its_range_is_refused(discount):
    buffer, state = filled()
    with pytest.raises(ValueError, match="discount must be"):
        jax.eval_shape(lambda: buffer.sample(state, KEY, 4, discount=discount))


def test_bytes_are_told_and_refused(monkeypatch):
    buffer = EpisodicBuffer(1000, FIELDS, max_rows=100)
    state = buffer.init()
    held = state.packed.nbytes + state.pairs.nbytes + state.table.nbytes
    assert buffer.nbytes == held == 17_600
    assert "1,000 steps in up to 100 rows, 17.6 kB: obs (2,) int32" in repr(buffer)
    monkeypatch.setattr(process, "free_memory_bytes", lambda: 1000)
    with pytest.raises(ValueError, match="1,000 steps need"):
        buffer.init()


def test_weights_of_the_host_have_no_equal():
    twin = EpisodicReplayBuffer(9, FIELDS, terminals="none")
    twin.add_episode(obs=np.zeros((9, 2), np.int32))
    twin.set_row_weights([2.0])
    with pytest.raises(ValueError, match="have weights"):
        EpisodicBuffer.from_host(twin)


# ── In a graph ─────────────────────────────────────────────────────────────────────────────────

BUFFER = EpisodicBuffer(10_000, {"obs": ((2,), np.float32)}, terminals="single", max_rows=50)


def step(state, number):
    obs = jnp.ones((100, 2), jnp.float32) * number
    marks = jnp.arange(100) % (number + 2) == 0
    state = BUFFER.add(state, {"obs": obs}, terminals=marks, length=100 - number)
    batch = BUFFER.sample(state, jax.random.fold_in(KEY, number), 32, discount=0.9)
    return state, sum(jnp.sum(array) for array in batch.values())


def test_a_scan_writes_rows_where_they_stand():
    assert copies(compiled_text(step, BUFFER.init()), (10_000, 2)) == 0


def test_case_20_chunks_of_any_length_draw_the_same():
    run = jax.jit(lambda state, numbers: lax.scan(step, state, numbers))
    _, whole = run(BUFFER.init(), jnp.arange(12))
    state, parts = BUFFER.init(), []
    for chunk in jnp.arange(12).reshape(6, 2):
        state, drawn = run(state, chunk)
        parts.append(drawn)
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_the_state_is_an_argument_not_a_constant():
    text = draw.lower(BUFFER, BUFFER.init(), KEY, 4, 0.9).as_text()
    assert "dense_resource" not in text
    assert len(text) < 100_000
