"""The rollout buffer against plain lists of rows, and the ways in which it may not fail."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loopless.replay import RolloutBuffer, columns

FIELDS = {"obs": {"near": ((2,), "float32"), "far": ((), np.float64)}, "row": ((), torch.int64)}
GAMMA, LAMBDA = 0.9, 0.8
STEPS, ENVS = 6, 3
LAST_VALUES = np.array([0.3, -0.7, 0.9])
both_libraries = pytest.mark.parametrize("library", ["numpy", "torch"])
both_autoresets = pytest.mark.parametrize("autoreset", ["same_step", "next_step"])


def host(x):
    return np.asarray(x)


def make(library="numpy", cls=RolloutBuffer, steps=STEPS, envs=ENVS, fields=FIELDS, **options):
    return cls(steps, envs, fields, library=library, **options)


def row_of(number, end=""):
    """Row `number` of a stream; every number that it holds is its own."""
    return {
        "row": number + 1,
        "rewards": float(np.sin(number)),
        "values": float(np.cos(3 * number)),
        "terminated": end in ("terminated", "both"),
        "truncated": end in ("truncated", "both"),
        "final": float(np.sin(7 * number)),
        "known": False,
        "reset": False,
    }


def step_of(rows):
    """What `add` takes, from one row or from a list of them."""
    names = ("row", "rewards", "values", "terminated", "truncated")
    if isinstance(rows, dict):
        step = {name: rows[name] for name in names}
    else:
        step = {name: np.array([row[name] for row in rows]) for name in names}
    near = np.stack([np.float32(step["row"])] * 2, -1)
    return step | {"obs": {"near": near, "far": step["row"] / 3}}


def fill(buffer, steps, envs=ENVS, end=""):
    for t in range(steps):
        buffer.add(**step_of([row_of(t * envs + env, end) for env in range(envs)]))


def gae_by_loop(rows, last_value, next_step):
    """Advantages of one column, one row at a time; 0 where the row is a reset."""
    advantages, following = [0.0] * len(rows), 0.0
    for t in reversed(range(len(rows))):
        row = rows[t]
        next_value = rows[t + 1]["values"] if t + 1 < len(rows) else last_value
        if row["reset"]:
            following = 0.0
        elif row["terminated"]:
            following = row["rewards"] - row["values"]
        elif row["truncated"]:
            final = next_value if next_step else row["final"]
            following = row["rewards"] + GAMMA * final - row["values"]
        else:
            delta = row["rewards"] + GAMMA * next_value - row["values"]
            following = delta + GAMMA * LAMBDA * following
        advantages[t] = following
    return advantages


class Lists:
    """A rollout buffer of lists of dicts."""

    def __init__(self, next_step):
        self.next_step = next_step
        self.columns = [[] for _ in range(ENVS)]
        self.after_end = [False] * ENVS

    def new_row(self, number, env, end):
        row = row_of(number, "" if self.next_step and self.after_end[env] else end)
        return row | {"reset": self.next_step and self.after_end[env]}

    def add(self, env, row):
        self.after_end[env] = row["terminated"] or row["truncated"]
        self.columns[env].append(row)

    def waiting(self):
        return [
            (t, env)
            for t in range(STEPS)
            for env, rows in enumerate(self.columns)
            if not self.next_step and t < len(rows) and not rows[t]["known"]
            if rows[t]["truncated"] and not rows[t]["terminated"]
        ]

    def end_with_penalty(self, env, penalty):
        *earlier, last = self.columns[env]
        zeroed = 0
        for row in reversed(earlier):
            if row["terminated"] or row["truncated"]:
                break
            row["rewards"] = 0.0
            zeroed += not row["reset"]
        last |= {"rewards": penalty, "terminated": True, "truncated": False}
        self.after_end[env] = True
        return zeroed

    def padded(self, value):
        """value(row) at each filled cell and 0 elsewhere, [longest, envs]."""
        longest = range(max(map(len, self.columns)))
        cells = [[value(c[t]) if t < len(c) else 0 for c in self.columns] for t in longest]
        return np.array(cells).reshape(len(longest), ENVS)


def check_same(buffer, lists):
    assert buffer.lengths.tolist() == [len(rows) for rows in lists.columns]
    valid = lists.padded(lambda row: not row["reset"]).astype(bool)
    np.testing.assert_array_equal(host(buffer.valid), valid)
    assert len(buffer) == valid.sum()
    for name in ("row", "terminated", "truncated"):
        expected = lists.padded(lambda row, name=name: row[name])
        np.testing.assert_array_equal(host(buffer[name]), expected)
    for name in ("rewards", "values"):
        expected = lists.padded(lambda row, name=name: row[name]).astype(np.float32)
        np.testing.assert_array_equal(host(buffer[name]), expected)
    row = lists.padded(lambda row: row["row"])
    np.testing.assert_array_equal(host(buffer["obs"]["far"]), row / 3)
    np.testing.assert_array_equal(host(buffer["obs"]["near"])[..., 1], row)
    assert list(zip(*(x.tolist() for x in buffer.pending()), strict=True)) == lists.waiting()


def check_finish(buffer, lists):
    arguments = {"gamma": GAMMA, "lambda_": LAMBDA}
    if not any(lists.columns):
        with pytest.raises(RuntimeError, match="nothing was added"):
            buffer.finish(LAST_VALUES, **arguments)
        return
    if lists.waiting():
        with pytest.raises(RuntimeError, match=rf"finish: {len(lists.waiting())} truncated rows"):
            buffer.finish(LAST_VALUES, **arguments)
        bootstrap(buffer, lists)
    buffer.finish(LAST_VALUES, **arguments)
    for rows, last_value in zip(lists.columns, LAST_VALUES, strict=True):
        for row, advantage in zip(
            rows, gae_by_loop(rows, last_value, lists.next_step), strict=True
        ):
            row["advantage"] = advantage
    advantages = lists.padded(lambda row: row["advantage"])
    returns = lists.padded(lambda row: 0 if row["reset"] else row["advantage"] + row["values"])
    np.testing.assert_allclose(host(buffer.advantages), advantages, atol=1e-5)
    np.testing.assert_allclose(host(buffer.returns), returns, atol=1e-5)
    numbers = [row["row"] for rows in lists.columns for row in rows if not row["reset"]]
    if numbers:
        drawn = np.concatenate([host(batch["row"]) for batch in buffer.minibatches(4)])
        assert sorted(drawn.tolist()) == sorted(numbers)


def bootstrap(buffer, lists):
    waiting = lists.waiting()
    buffer.bootstrap([lists.columns[env][t]["final"] for t, env in waiting])
    for t, env in waiting:
        lists.columns[env][t]["known"] = True


def play_add(buffer, lists, number, operation, ends, envs):
    rows = [lists.new_row(number + env, env, ends[env]) for env in envs]
    step = step_of(rows[0] if operation == "env" else rows)
    if operation == "all, final values" and not lists.next_step:
        step["final_values"] = [row["final"] for row in rows]
        rows = [row | {"known": True} for row in rows]
    if operation == "env":
        step["env"] = envs[0]
    elif operation == "envs":
        step["envs"] = envs
    if any(len(lists.columns[env]) == STEPS for env in envs):
        with pytest.raises(RuntimeError, match="is full with 6 steps"):
            buffer.add(**step)
        return
    buffer.add(**step)
    for env, row in zip(envs, rows, strict=True):
        lists.add(env, row)


def play(cls, library, autoreset, script):
    """Play a script on a buffer and on lists, and compare where it looks and at the end."""
    buffer = make(library, cls, autoreset=autoreset)
    lists = Lists(autoreset == "next_step")
    for number, (operation, *rest) in enumerate(script):
        if operation == "look":  # looking scrubs, so that it must not happen all the time
            check_same(buffer, lists)
        elif operation == "bootstrap":
            bootstrap(buffer, lists)
        elif operation == "finish":
            check_finish(buffer, lists)
        elif operation == "clear":
            buffer.clear()
            lists.columns = [[] for _ in range(ENVS)]
        elif operation == "clear env":
            buffer.clear(env=rest[0])
            lists.columns[rest[0]] = []
        elif operation == "penalty":
            rows = lists.columns[rest[0]]
            if rows and not rows[-1]["reset"]:
                zeroed = buffer.end_with_penalty(rest[0], -5.0)
                assert zeroed == lists.end_with_penalty(rest[0], -5.0)
            else:
                with pytest.raises(RuntimeError, match="no step to end"):
                    buffer.end_with_penalty(rest[0], -5.0)
        else:
            play_add(buffer, lists, number * ENVS, operation, *rest)
    check_same(buffer, lists)
    check_finish(buffer, lists)


one_env = st.integers(0, ENVS - 1)
some_ends = st.tuples(*[st.sampled_from(["", "", "", "terminated", "truncated", "both"])] * ENVS)
every_env = st.just(range(ENVS))
operations = st.one_of(
    st.tuples(st.sampled_from(["all", "all", "all, final values"]), some_ends, every_env),
    st.tuples(
        st.just("envs"), some_ends, st.lists(one_env, unique=True, min_size=1, max_size=ENVS)
    ),
    st.tuples(st.just("env"), some_ends, one_env.map(lambda env: [env])),
    st.tuples(st.sampled_from(["look", "bootstrap", "finish", "clear"])),
    st.tuples(st.sampled_from(["clear env", "penalty"]), one_env),
)


@both_libraries
@both_autoresets
@settings(max_examples=120, deadline=None)
@given(script=st.lists(operations, max_size=14))
def test_buffer_agrees_with_lists_of_rows(library, autoreset, script):
    play(RolloutBuffer, library, autoreset, script)


def add_all(*ends):
    return [("all", (end,) * ENVS, range(ENVS)) for end in ends]


STALE = [*add_all("", "truncated", "", ""), ("clear",), ("env", ("",) * 3, [1])]
ENDS = add_all("", "truncated", "", "terminated", "")
RESETS = [*add_all("", "truncated"), ("clear",), *add_all("", "", "terminated", "", "")]


class StaleRowsVisible(RolloutBuffer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._columns.scrub = lambda: None


class BootstrapsFromTheNextEpisode(RolloutBuffer):
    def _next_values(self, last, unfinished):
        next_values = super()._next_values(last, unfinished)
        next_values[:-1] = self["values"][1:]
        return next_values


class ZeroBootstrapAtTheWindowsEnd(RolloutBuffer):
    def _next_values(self, last, unfinished):
        return super()._next_values(last * 0, unfinished)


class LastValuesBelowTheLongestColumnOnly(RolloutBuffer):
    def _next_values(self, last, unfinished):
        return super()._next_values(last, unfinished[:0])


class ForgetsTheEndAtClear(RolloutBuffer):
    def clear(self, env=None, *, after_reset=False):
        super().clear(env, after_reset=True)


class TrainsOnResetRows(RolloutBuffer):
    def _valid(self, rows):
        return super()._valid(rows) | self._store.array(
            np.arange(rows)[:, None] < self._columns.lengths
        )


class NormalizesOverPadding(RolloutBuffer):
    def finish(self, *args, normalize_advantages=False, **kwargs):
        super().finish(*args, **kwargs)
        x = self.advantages
        x[:] = (x - x.mean()) / (x - x.mean()).__pow__(2).mean() ** 0.5


@both_libraries
@pytest.mark.parametrize(
    ("mutant", "autoreset", "script"),
    [
        (StaleRowsVisible, "same_step", STALE),
        (BootstrapsFromTheNextEpisode, "same_step", ENDS),
        (ZeroBootstrapAtTheWindowsEnd, "same_step", ENDS),
        (LastValuesBelowTheLongestColumnOnly, "same_step", [*ENDS, ("env", ("",) * 3, [1])]),
        (ForgetsTheEndAtClear, "next_step", RESETS),
        (TrainsOnResetRows, "next_step", RESETS),
    ],
)
def test_a_broken_buffer_disagrees_with_lists_of_rows(library, mutant, autoreset, script):
    play(RolloutBuffer, library, autoreset, script)
    with pytest.raises(AssertionError):
        play(mutant, library, autoreset, script)


def check_normalized_over_valid_rows(cls, library):
    buffer = make(library, cls)
    fill(buffer, 3)
    buffer.add(env=0, **step_of(row_of(20)))
    buffer.finish(LAST_VALUES, gamma=GAMMA, lambda_=LAMBDA, normalize_advantages=True)
    kept = host(buffer.advantages)[host(buffer.valid)]
    assert kept.size == 10
    np.testing.assert_allclose([kept.mean(), kept.std()], [0, 1], atol=1e-5)
    assert not host(buffer.advantages)[~host(buffer.valid)].any()


@both_libraries
def test_advantages_are_normalized_over_valid_rows(library):
    check_normalized_over_valid_rows(RolloutBuffer, library)


@both_libraries
def test_normalizing_over_padding_is_caught(library):
    with pytest.raises(AssertionError):
        check_normalized_over_valid_rows(NormalizesOverPadding, library)


@both_libraries
def test_min_std_is_the_floor_of_the_deviation(library):
    buffer = make(library)
    fill(buffer, 3)
    buffer.finish(LAST_VALUES, gamma=GAMMA, lambda_=LAMBDA)
    plain = host(buffer.advantages).copy()
    options = {"normalize_advantages": True, "min_std": 100.0}
    buffer.finish(LAST_VALUES, gamma=GAMMA, lambda_=LAMBDA, **options)
    np.testing.assert_allclose(host(buffer.advantages), (plain - plain.mean()) / 100, atol=1e-6)


@both_libraries
def test_poison_of_an_earlier_rollout_is_never_handed_out(library):
    buffer = make(library)
    poison = {"obs": {"near": np.full((3, 2), np.nan, "f4"), "far": np.full(3, np.nan)}}
    poison |= {"row": np.full(3, -9), "rewards": [np.nan] * 3, "values": [np.nan] * 3}
    for _ in range(STEPS):
        buffer.add(terminated=[True] * 3, truncated=[True] * 3, final_values=[np.nan] * 3, **poison)
    buffer.finish(gamma=GAMMA, lambda_=LAMBDA)
    buffer.clear()
    buffer.add(env=1, **step_of(row_of(0)))
    buffer.add(envs=[1, 2], **step_of([row_of(1), row_of(2)]))
    buffer.finish(LAST_VALUES, gamma=GAMMA, lambda_=LAMBDA)
    (batch,) = buffer.minibatches()
    (sequence,) = buffer.sequences()
    views = {name: buffer[name] for name in (*columns.flatten(FIELDS), "final_values", "returns")}
    for arrays in (columns.flatten(batch), columns.flatten(sequence), views, buffer.state()):
        for name, array in arrays.items():
            assert np.isfinite(host(array)).all(), name
            assert not (host(array) == -9).any(), name
    assert sequence["row"].shape == (STEPS, 2)  # env 0 has nothing to train on
    assert sequence["valid"].sum() == 3
    assert not host(sequence["row"])[~host(sequence["valid"])].any()


@both_libraries
def test_scrubbing_touches_no_row_that_is_filled_again(library):
    buffer = make(library)
    fill(buffer, STEPS)
    buffer.clear()
    fill(buffer, STEPS)
    buffer._columns.scrub()
    np.testing.assert_array_equal(host(buffer["row"]).ravel(), np.arange(STEPS * ENVS) + 1)


@both_libraries
def test_rows_of_the_rollout_before_the_last_are_not_handed_out_either(library):
    buffer = make(library)
    fill(buffer, STEPS)
    buffer.clear()
    fill(buffer, 2)
    buffer.clear()
    buffer.add(env=0, **step_of(row_of(0)))
    (sequence,) = buffer.sequences()
    assert host(sequence["row"])[:, 0].tolist() == [1] + [0] * (STEPS - 1)


@both_libraries
def test_no_envs_add_nothing(library):
    buffer = make(library)
    nobody = {name: value[:0] for name, value in STEP.items() if name != "obs"}
    nobody["obs"] = {name: value[:0] for name, value in STEP["obs"].items()}
    buffer.add(envs=[], **nobody)
    assert len(buffer) == 0


@both_libraries
def test_access_is_a_view(library):
    buffer = make(library)
    fill(buffer, 2)
    buffer["rewards"][1, 2] = 7.0
    assert buffer["rewards"].tolist()[1][2] == 7.0


@both_libraries
@pytest.mark.parametrize(
    ("truncated", "expected"),
    [
        ([False, False, False, True], [1.0625, 0.75, 11.8575, 4.85]),
        ([False, True, False, True], [3.8975, 7.05, 11.8575, 4.85]),
    ],
)
def test_worked_example_with_truncation_at_the_end_and_inside(library, truncated, expected):
    buffer = make(library, steps=4, envs=1, fields={}, float_dtype="float64")
    rows = zip([1, 1, 10, 2], [0.5, 0.25, 1, 0.75], [0, 7 * truncated[1], 0, 4], strict=True)
    for t, (reward, value, final) in enumerate(rows):
        terminated = t == 1 and not truncated[1]
        step = {"rewards": reward, "values": value, "final_values": final}
        buffer.add(env=0, terminated=terminated, truncated=truncated[t], **step)
    buffer.finish(gamma=0.9, lambda_=0.5)
    np.testing.assert_allclose(host(buffer.advantages)[:, 0], expected, rtol=1e-12)


@both_libraries
@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.sampled_from(["", "", "terminated", "truncated"]), min_size=1, max_size=10),
    window=st.integers(1, 7),
)
def test_next_step_rows_equal_the_same_episodes_in_same_step_rows(library, ends, window):
    """One stream, window by window, with a reset row after each end and without."""
    stream = []
    for t, end in enumerate(ends):
        stream.append(row_of(t, end))
        if end:  # the reset row: its observation is the final one, the rest means nothing
            stream.append(row_of(100 + t) | {"values": stream[-1]["final"], "reset": True})
    same_step = make(library, steps=window, envs=1)
    next_step = make(library, steps=window, envs=1, autoreset="next_step")
    for first in range(0, len(stream), window):
        rows = stream[first : first + window]
        after = stream[first + window :] or [{"values": stream[-1]["final"]}]
        for row in rows:
            next_step.add(env=0, **step_of(row))
            if not row["reset"]:
                same_step.add(env=0, final_values=row["final"], **step_of(row))
        next_step.finish([after[0]["values"]], gamma=GAMMA, lambda_=LAMBDA)
        valid = host(next_step.valid)
        assert valid[:, 0].tolist() == [not row["reset"] for row in rows]
        if valid.any():
            same_step.finish([after[0]["values"]], gamma=GAMMA, lambda_=LAMBDA)
            for name in ("row", "advantages", "returns"):
                real = host(next_step[name])[valid]
                np.testing.assert_allclose(real, host(same_step[name])[:, 0], atol=1e-5)
        next_step.clear()
        same_step.clear()


@both_libraries
def test_after_a_reset_by_hand_the_first_row_is_a_step(library):
    buffer = make(library, autoreset="next_step")
    fill(buffer, 1, end="terminated")
    buffer.clear(after_reset=True)
    fill(buffer, 1)
    assert len(buffer) == ENVS


@both_libraries
@settings(max_examples=30, deadline=None)
@given(
    lengths=st.tuples(*[st.integers(0, STEPS)] * ENVS).filter(any),
    size=st.integers(1, 20),
    by_count=st.booleans(),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_each_valid_row_is_drawn_once_an_epoch(
    library, lengths, size, by_count, shuffle, drop_last
):
    buffer = make(library)
    for env, length in enumerate(lengths):
        for t in range(length):
            buffer.add(env=env, **step_of(row_of(10 * t + env)))
    total = sum(lengths)
    size = min(size, total)
    options = {"count": size} if by_count else {"batch_size": size}
    batches = list(buffer.minibatches(**options, epochs=2, shuffle=shuffle, drop_last=drop_last))
    sizes = [len(batch["row"]) for batch in batches]
    kept = total - total % size if drop_last else total
    assert sum(sizes) == 2 * kept
    if by_count:
        assert len(batches) == 2 * size
        assert max(sizes) - min(sizes) <= (not drop_last)
    rows = np.concatenate([host(batch["row"]) for batch in batches]).reshape(2, kept)
    expected = np.sort(host(buffer["row"])[host(buffer.valid)])
    for epoch in rows:
        assert len(set(epoch)) == kept
        assert set(epoch) <= set(expected)
    for batch in batches:
        np.testing.assert_array_equal(host(batch["obs"]["far"]), host(batch["row"]) / 3)


@both_libraries
def test_sequences_are_whole_columns(library):
    buffer = make(library)
    fill(buffer, 4)
    columns_seen = []
    for batch in buffer.sequences(2):
        assert batch["obs"]["near"].shape[0] == STEPS
        assert batch["valid"].tolist() == [[t < 4] * batch["row"].shape[1] for t in range(STEPS)]
        columns_seen += host(batch["row"])[:4].T.tolist()
    assert sorted(columns_seen) == host(buffer["row"]).T.tolist()


def order(buffer, **options):
    return np.concatenate([host(batch["row"]) for batch in buffer.minibatches(5, **options)])


def test_one_seed_gives_one_order_in_both_libraries():
    orders = []
    for library, seed in (("numpy", 3), ("torch", 3), ("numpy", 4)):
        buffer = make(library, seed=seed)
        fill(buffer, STEPS)
        orders.append(order(buffer, epochs=2).tolist())
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][:18] != orders[0][18:]


@both_libraries
def test_global_generators_are_left_alone(library):
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    buffer = make(library)
    fill(buffer, STEPS)
    order(buffer)
    after = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after


def as_bytes(state):
    return {
        name: (host(value).dtype.str, host(value).shape, host(value).tobytes())
        for name, value in state.items()
    }


@both_libraries
@both_autoresets
def test_a_restored_buffer_continues_byte_for_byte(library, autoreset):
    buffer, other = (make(library, autoreset=autoreset, seed=seed) for seed in (1, 2))
    fill(other, STEPS, end="truncated")
    fill(buffer, 2, end="terminated" if autoreset == "same_step" else "")
    buffer.add(env=1, **step_of(row_of(30, "truncated")))
    order(buffer)
    buffer.clear(env=1)
    other.restore(buffer.state())
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    for both in (buffer, other):
        both.add(**step_of([row_of(40 + env) for env in range(ENVS)]))
        both.finish(LAST_VALUES, gamma=GAMMA, lambda_=LAMBDA)
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    assert order(other).tolist() == order(buffer).tolist()
    np.testing.assert_array_equal(host(other.valid), host(buffer.valid))
    assert bool(host(buffer.valid)[0, 1]) == (autoreset == "same_step")


def test_a_state_moves_between_libraries_and_is_a_copy():
    first, second = make("numpy"), make("torch")
    fill(first, 2)
    state = first.state()
    second.restore(state)
    first["rewards"][:] = 9.0
    second["values"][:] = 9.0
    fresh = make("numpy")
    fill(fresh, 2)
    assert as_bytes(state) == as_bytes(fresh.state())


STEP = step_of([row_of(env) for env in range(ENVS)])
WRONG_ARRAYS = {
    "a missing name": ({"row": None}, ValueError, "row is missing"),
    "an unknown name": ({"reward": 1.0}, ValueError, r"reward is unknown \(did you mean rewards\?"),
    "a wrong shape": ({"rewards": np.zeros((3, 1))}, ValueError, r"rewards has shape \(3, 1\)"),
    "rows that differ": ({"rewards": [[1], [2, 3], []]}, ValueError, "rows differ in length"),
    "wide floats": (
        {"obs": {"near": np.zeros((3, 2)), "far": np.zeros(3)}},
        TypeError,
        "obs/near has dtype float64, expected float32",
    ),
    "integers that floats round": (
        {"obs": {"near": np.zeros((3, 2), np.float32), "far": np.arange(3)}},
        TypeError,
        "obs/far has dtype int64, expected float64",
    ),
    "floats for integers": ({"row": np.zeros(3)}, TypeError, "row has dtype float64"),
    "text": ({"row": ["a", "b", "c"]}, TypeError, "row has dtype str"),
    "boolean rewards": ({"rewards": [True] * 3}, TypeError, "rewards has dtype bool"),
    "huge rewards": ({"rewards": [1e300] * 3}, ValueError, "rewards holds numbers too large"),
    "float flags": ({"terminated": np.zeros(3)}, TypeError, "flags are booleans"),
    "integer flags": ({"truncated": [0, 1, 2]}, ValueError, "integers other than 0 and 1"),
    "env and envs": ({"env": 0, "envs": [0]}, ValueError, "env or envs, not both"),
    "no such env": ({"env": 3}, ValueError, r"from 0 to 2; received 3"),
    "a negative env": ({"env": -1}, ValueError, r"from 0 to 2; received -1"),
    "an env twice": ({"envs": [1, 1, 2]}, ValueError, r"distinct indices \[k\]"),
    "a mask of envs": ({"envs": [True, False, True]}, ValueError, r"distinct indices \[k\]"),
}


def refuses(library, call, error, message, **options):
    """`call(buffer)` raises, and the buffer is as before."""
    buffer = make(library, **options)
    fill(buffer, 2)
    before = as_bytes(buffer.state())
    with pytest.raises(error, match=message) as caught:
        call(buffer)
    assert str(caught.value).startswith("RolloutBuffer")
    assert as_bytes(buffer.state()) == before


@both_libraries
@pytest.mark.parametrize("case", WRONG_ARRAYS)
def test_add_refuses_and_leaves_the_buffer_alone(library, case):
    change, error, message = WRONG_ARRAYS[case]
    step = {name: value for name, value in (STEP | change).items() if value is not None}
    refuses(library, lambda buffer: buffer.add(**step), error, message)


@both_libraries
def test_add_lists_all_that_is_wrong_at_once(library):
    step = STEP | {"rewards": np.zeros(2), "row": np.zeros(3), "extra": 1}
    del step["values"]
    message = "values is missing; extra is unknown; row has dtype.*; rewards has shape"
    refuses(library, lambda buffer: buffer.add(**step), ValueError, message)


FINISH = {"gamma": GAMMA, "lambda_": LAMBDA}
WRONG_CALLS = {
    "no last values": (lambda b: b.finish(**FINISH), ValueError, "env 0, 1, 2 has not ended"),
    "few last values": (lambda b: b.finish([1.0], **FINISH), ValueError, r"last_values has shape"),
    "text last values": (
        lambda b: b.finish(["a"] * 3, **FINISH),
        TypeError,
        "last_values has dtyp",
    ),
    "bootstraps for nobody": (lambda b: b.bootstrap([1.0]), ValueError, "0 rows are pending"),
    "estimates unknown": (lambda b: b.advantages, RuntimeError, r"Call finish\(\)"),
    "size and count": (lambda b: b.minibatches(2, count=2), ValueError, "not both"),
    "no size": (lambda b: b.minibatches(0), ValueError, "from 1 up; received 0"),
    "many batches": (lambda b: b.minibatches(count=7), ValueError, "do not make 7 batches"),
    "nothing left": (lambda b: b.minibatches(7, drop_last=True), ValueError, "no batch of 7"),
    "penalty for nobody": (lambda b: b.end_with_penalty(9, 0.0), ValueError, "received 9"),
    "text penalty": (lambda b: b.end_with_penalty(0, "a"), TypeError, "rewards has dtype str"),
    "clear of nobody": (lambda b: b.clear(env=9), ValueError, "received 9"),
    "another shape": (lambda b: b.restore(make(steps=5).state()), ValueError, "has 5 steps, the"),
    "other envs": (lambda b: b.restore(make(envs=2).state()), ValueError, "has 2 envs, the"),
    "other fields": (lambda b: b.restore(make(fields={}).state()), ValueError, "row is missing"),
    "other floats": (
        lambda b: b.restore(make(float_dtype="float64").state()),
        TypeError,
        "rewards has dtype float64, expected float32",
    ),
    "other autoreset": (
        lambda b: b.restore(make(autoreset="next_step").state()),
        ValueError,
        "data/final_values is missing",
    ),
    "broken lengths": (
        lambda b: b.restore(b.state() | {"lengths": np.array([9, 9, 9])}),
        ValueError,
        "lengths are not from 0 to 6",
    ),
}


@both_libraries
@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_wrong_call_is_refused_and_leaves_the_buffer_alone(library, case):
    refuses(library, *WRONG_CALLS[case])


@both_libraries
def test_final_values_are_refused_where_rows_hold_them(library):
    step = STEP | {"final_values": np.zeros(3)}
    message = "no place with next-step autoreset"
    refuses(library, lambda b: b.add(**step), ValueError, message, autoreset="next_step")


@both_libraries
def test_ends_in_reset_rows_are_refused(library):
    buffer = make(library, autoreset="next_step")
    fill(buffer, 2, end="terminated")
    with pytest.raises(RuntimeError, match=r"row 1 of env 0 .* use autoreset=\"same_step\""):
        buffer.finish(LAST_VALUES, **FINISH)


@both_libraries
def test_batches_of_a_buffer_that_changed_are_refused(library):
    buffer = make(library)
    fill(buffer, 2)
    batches = buffer.minibatches(2)
    next(batches)
    fill(buffer, 1)
    with pytest.raises(RuntimeError, match="Ask for new batches"):
        next(batches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps is an integer from 1 up; received 0"),
        ({"envs": 2.5}, "envs is an integer from 1 up; received 2.5"),
        ({"seed": -1}, "seed is an integer from 0 up"),
        ({"library": "jax"}, "library='jax' is unknown; choose numpy or torch"),
        ({"autoreset": "disabled"}, "choose same_step or next_step"),
        ({"device": "cuda"}, "device='cuda' needs library=\"torch\""),
        ({"float_dtype": "int32"}, "float_dtype is 'int32', no floating dtype"),
        ({"fields": {"rewards": ((), "f4")}}, "rewards is a name of the buffer's own"),
        ({"fields": {"a": "f4", "b": ((), None)}}, "a is 'f4'.*; b is "),
        ({"fields": {"a": ((), "bfloat16")}}, "a is .* not .shape, dtype."),
        ({"fields": {"a": ((-1,), "f4")}}, "negative size"),
        ({"fields": {"a/b": ((), "f4")}}, "a/b holds a"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_what_does_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(columns, "free_memory_bytes", lambda: 10**6)
    monkeypatch.setattr(columns.NumPyStore, "zeros", lambda *_: pytest.fail("allocated"))
    message = r"1,000 steps × 8 envs need 226.0 MB, of which pixels \(4, 84, 84\) uint8 takes"
    with pytest.raises(ValueError, match=message):
        make(steps=1000, envs=8, fields={"pixels": ((4, 84, 84), np.uint8)})


@both_libraries
def test_bytes_are_counted_and_printed(library):
    buffer = make(library, steps=100)
    assert buffer.nbytes == 100 * ENVS * (8 + 8 + 8 + 5 * 4 + 3)
    assert "100 steps × 3 envs" in repr(buffer)
    assert "14.1 kB" in repr(buffer)


@both_libraries
def test_inputs_may_be_read_only_reversed_or_need_gradients(library):
    buffer = make(library)
    frozen = np.arange(6, dtype=np.float32).reshape(3, 2)[::-1]
    frozen.flags.writeable = False
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    step = STEP | {"obs": {"near": frozen, "far": np.arange(3.0)[::-1]}, "values": values}
    buffer.add(**step)
    assert buffer["obs"]["near"][0].tolist() == [[4, 5], [2, 3], [0, 1]]
    assert buffer["values"].tolist() == [[1, 2, 3]]
    assert library == "numpy" or not buffer["values"].requires_grad
    buffer["values"][:] = 0
    buffer["obs"]["near"][:] = 9
    assert values.tolist() == [1, 2, 3]
    assert frozen.tolist() == [[4, 5], [2, 3], [0, 1]]


@both_libraries
def test_casts_without_loss_are_made(library):
    buffer = make(library, fields={"wide": ((), "int64"), "real": ((), "float32")})
    flags = {"terminated": [0, 1, 0], "truncated": np.zeros(3, np.uint8)}
    wide, real = np.array([1, 2, 3], np.int32), torch.ones(3, dtype=torch.bfloat16)
    buffer.add(wide=wide, real=real, rewards=[1, 2, 3], values=np.ones(3), **flags)
    buffer.add(env=0, wide=4, real=0.1, rewards=1, values=2, terminated=True, truncated=0)
    assert buffer["wide"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert buffer["real"][1, 0] == np.float32(0.1)
    assert buffer["terminated"].tolist() == [[False, True, False], [True, False, False]]


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float16, np.float64])
def test_half_and_double_floats_are_stored_in_pytorch(dtype):
    buffer = make("torch", fields={"x": ((), dtype)}, float_dtype=dtype)
    step = {"rewards": [1.0] * 3, "values": [0.5] * 3, "terminated": [1, 1, 1]}
    x = torch.ones(3, dtype=buffer["x"].dtype)
    buffer.add(x=x, truncated=[0, 0, 0], **step)
    buffer.finish(gamma=0.5, lambda_=0.5)
    assert buffer.advantages.tolist() == [[0.5] * 3]
    assert buffer.advantages.dtype == x.dtype


def test_a_numpy_buffer_does_not_import_torch():
    code = (
        "import sys; from loopless.replay import RolloutBuffer as R; b = R(2, 1, {}); "
        "b.add(rewards=[1.], values=[0.], terminated=[True], truncated=[False]); "
        "b.finish(gamma=1.0, lambda_=1.0); list(b.minibatches()); b.restore(b.state()); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
