"""The rollout buffer against its loop twin, lists of rows, in scripts that hypothesis writes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollouts import (
    ENVS,
    FINISH,
    LAST_VALUES,
    STEPS,
    Lists,
    both_autoresets,
    both_libraries,
    gae_by_loop,
    host,
    make,
    step_of,
)

from loopless.replay.host.rollout import estimates
from loopless.replay.host.rollout.columns import Columns
from loopless.replay.host.rollout.estimates import Ends


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
    if not any(lists.columns):
        with pytest.raises(RuntimeError, match="nothing was added"):
            buffer.finish(LAST_VALUES, **FINISH)
        return
    if lists.waiting():
        with pytest.raises(RuntimeError, match=rf"finish: {len(lists.waiting())} truncated rows"):
            buffer.finish(LAST_VALUES, **FINISH)
        bootstrap(buffer, lists)
    buffer.finish(LAST_VALUES, **FINISH)
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


def play(library, autoreset, script):
    """Play a script on a buffer and on lists, and compare where it looks and at the end."""
    buffer = make(library, autoreset=autoreset)
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
    play(library, autoreset, script)


def add_all(*ends):
    return [("all", (end,) * ENVS, range(ENVS)) for end in ends]


STALE = [*add_all("", "truncated", "", ""), ("clear",), ("env", ("",) * 3, [1])]
ENDS = add_all("", "truncated", "", "terminated", "")
RESETS = [*add_all("", "truncated"), ("clear",), *add_all("", "", "terminated", "", "")]


def next_values_of_the_next_episode(where, ends, last_values):
    successors = right_next_values(where, ends, last_values)
    successors[:-1] = ends.columns.view("values")[1:]
    return successors


def next_values_of_zero_outside(where, ends, last_values):
    return right_next_values(where, ends, last_values * 0)


def valid_with_reset_rows(ends, rows):
    return ends.library.array(np.arange(rows)[:, None] < ends.columns.lengths)


right_next_values, right_outside = estimates.next_values, estimates.successor_outside
right_remember = Ends.remember
MUTANTS = {
    "stale rows are visible": (Columns, "scrub", lambda columns: None, "same_step", STALE),
    "bootstraps from the next episode": (
        estimates,
        "next_values",
        next_values_of_the_next_episode,
        "same_step",
        ENDS,
    ),
    "bootstraps from 0 at the window's end": (
        estimates,
        "next_values",
        next_values_of_zero_outside,
        "same_step",
        ENDS,
    ),
    "reads last values below the longest column only": (
        estimates,
        "successor_outside",
        lambda where, ends: right_outside(where, ends)[:0],
        "same_step",
        [*ENDS, ("env", ("",) * 3, [1])],
    ),
    "forgets the end at clear": (
        Ends,
        "remember",
        lambda ends, chosen, after_reset: right_remember(ends, chosen, True),
        "next_step",
        RESETS,
    ),
    "trains on reset rows": (Ends, "valid", valid_with_reset_rows, "next_step", RESETS),
}


@both_libraries
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_buffer_disagrees_with_lists_of_rows(library, mutant, monkeypatch):
    owner, name, broken, autoreset, script = MUTANTS[mutant]
    play(library, autoreset, script)
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        play(library, autoreset, script)
