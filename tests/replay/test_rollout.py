"""The rollout buffer against plain lists of rows, and the ways in which it may not fail."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loopless.replay import RolloutBuffer, columns

LIBRARIES = ["numpy", "torch"]
AUTORESETS = ["same_step", "next_step"]
FIELDS = {"obs": {"near": ((2,), "float32"), "far": ((), np.float64)}, "row": ((), torch.int64)}
GAMMA, LAMBDA = 0.9, 0.8
STEPS, ENVS = 6, 3
both_libraries = pytest.mark.parametrize("library", LIBRARIES)


def host(x):
    return np.asarray(x)


def make(library="numpy", steps=STEPS, envs=ENVS, cls=RolloutBuffer, fields=FIELDS, **options):
    return cls(steps, envs, fields, library=library, **options)


def step_of(rows):
    """What `add` takes, from one row (a dict) or from a list of them."""
    if isinstance(rows, list):
        step = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "final"}
        near, far = np.stack([step["row"]] * 2, -1).astype(np.float32), step["row"] / 3
    else:
        step = {name: value for name, value in rows.items() if name != "final"}
        near, far = np.full(2, step["row"], np.float32), step["row"] / 3
    return step | {"obs": {"near": near, "far": far}}


def row_of(number, terminated=False, truncated=False):
    """Row `number` of a stream; every number it holds is its own."""
    return {
        "row": number + 1,
        "rewards": float(np.sin(number)),
        "values": float(np.cos(3 * number)),
        "terminated": terminated,
        "truncated": truncated,
        "final": float(np.sin(7 * number)),
    }


def gae_by_loop(rows, last_value, next_step):
    """Advantages of one column, a row at a time; None where the row is a reset."""
    advantages, following = [None] * len(rows), 0.0
    for t in reversed(range(len(rows))):
        row = rows[t]
        next_value = rows[t + 1]["values"] if t + 1 < len(rows) else last_value
        if row["reset"]:
            following = 0.0
            continue
        if row["terminated"]:
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
    """The same buffer as lists of dicts."""

    def __init__(self, next_step):
        self.next_step = next_step
        self.columns = [[] for _ in range(ENVS)]
        self.after_end = [False] * ENVS

    def add(self, env, row):
        row["reset"] = self.next_step and self.after_end[env]
        self.after_end[env] = row["terminated"] or row["truncated"]
        self.columns[env].append(row)

    def waiting(self):
        return [
            (t, env)
            for t in range(STEPS)
            for env, rows in enumerate(self.columns)
            if not self.next_step and t < len(rows) and rows[t]["truncated"]
            if not rows[t]["terminated"] and not rows[t]["known"]
        ]

    def padded(self, value):
        """value(row) at each filled cell and 0 elsewhere, [longest, envs]."""
        longest = max(map(len, self.columns))
        return np.array(
            [
                [value(rows[t]) if t < len(rows) else 0 for rows in self.columns]
                for t in range(longest)
            ]
        ).reshape(longest, ENVS)


def check_same(buffer, lists):
    assert buffer.lengths.tolist() == [len(rows) for rows in lists.columns]
    valid = lists.padded(lambda row: not row["reset"]).astype(bool)
    np.testing.assert_array_equal(host(buffer.valid), valid)
    assert len(buffer) == valid.sum()
    for name in ("row", "terminated", "truncated"):
        np.testing.assert_array_equal(
            host(buffer[name]), lists.padded(lambda row, name=name: row[name])
        )
    for name in ("rewards", "values"):
        expected = lists.padded(lambda row, name=name: row[name]).astype(np.float32)
        np.testing.assert_array_equal(host(buffer[name]), expected)
    far = lists.padded(lambda row: row["row"] / 3)
    np.testing.assert_array_equal(host(buffer["obs"]["far"]), far)
    np.testing.assert_array_equal(
        host(buffer["obs"]["near"])[..., 1], lists.padded(lambda row: row["row"])
    )
    assert list(zip(*(host(x).tolist() for x in buffer.pending()), strict=True)) == lists.waiting()


def check_finish(buffer, lists):
    last_values = np.array([0.3, -0.7, 0.9])
    if not any(lists.columns):
        with pytest.raises(RuntimeError, match="nothing was added"):
            buffer.finish(last_values, gamma=GAMMA, lambda_=LAMBDA)
        return
    if lists.waiting():
        with pytest.raises(RuntimeError, match=rf"finish: {len(lists.waiting())} truncated rows"):
            buffer.finish(last_values, gamma=GAMMA, lambda_=LAMBDA)
        bootstrap(buffer, lists)
    buffer.finish(last_values, gamma=GAMMA, lambda_=LAMBDA)
    for env, rows in enumerate(lists.columns):
        advantages = gae_by_loop(rows, last_values[env], lists.next_step)
        for row, advantage in zip(rows, advantages, strict=True):
            row["advantage"] = 0.0 if advantage is None else advantage
            row["return"] = 0.0 if advantage is None else advantage + row["values"]
    for name in ("advantage", "return"):
        expected = lists.padded(lambda row, name=name: row[name])
        np.testing.assert_allclose(host(buffer[f"{name}s"]), expected, atol=1e-5)
    numbers = [row["row"] for rows in lists.columns for row in rows if not row["reset"]]
    if numbers:
        drawn = np.concatenate([host(batch["row"]) for batch in buffer.minibatches(4)])
        assert sorted(drawn.tolist()) == sorted(numbers)


def bootstrap(buffer, lists):
    waiting = lists.waiting()
    buffer.bootstrap([lists.columns[env][t]["final"] for t, env in waiting])
    for t, env in waiting:
        lists.columns[env][t]["known"] = True


ends = st.tuples(*[st.sampled_from(["go on"] * 3 + ["terminate", "truncate", "both"])] * ENVS)
chosen = st.lists(st.integers(0, ENVS - 1), unique=True, max_size=ENVS)
operations = st.one_of(
    st.tuples(st.sampled_from(["all", "all, final values"]), ends),
    st.tuples(st.just("all"), ends),
    st.tuples(st.just("envs"), ends, chosen),
    st.tuples(st.just("env"), ends, st.integers(0, ENVS - 1)),
    st.tuples(st.sampled_from(["bootstrap", "finish", "clear"])),
    st.tuples(st.sampled_from(["clear env", "penalty"]), st.integers(0, ENVS - 1)),
)


def play(cls, library, autoreset, script):
    """Play a script on a buffer and on lists, and compare after every operation."""
    buffer = make(library, cls=cls, autoreset=autoreset)
    lists = Lists(autoreset == "next_step")
    number = 0
    for operation, *rest in script:
        if operation in ("all", "all, final values", "envs", "env"):
            which = {"env": rest[1:], "envs": rest[-1]}.get(operation, range(ENVS))
            given = {"env": {"env": rest[-1]}, "envs": {"envs": rest[-1]}}.get(operation, {})
            rows = []
            for env in which:
                end = rest[0][env]
                if lists.next_step and lists.after_end[env]:
                    end = "go on"
                row = row_of(number, end in ("terminate", "both"), end in ("truncate", "both"))
                row["known"] = operation == "all, final values"
                rows.append(row)
                number += 1
            step = step_of(rows[0] if operation == "env" else rows) if rows else None
            if operation == "all, final values" and not lists.next_step:
                step["final_values"] = [row["final"] for row in rows]
            if step is None:
                continue
            for row in rows:
                del row["final"], row["known"]
            step.pop("known", None)
            for row, env in zip(rows, which, strict=True):
                row["final"] = float(np.sin(7 * (row["row"] - 1)))
                row["known"] = operation == "all, final values"
            if any(len(lists.columns[env]) == STEPS for env in which):
                with pytest.raises(RuntimeError, match="is full with 6 steps"):
                    buffer.add(**given, **step)
            else:
                buffer.add(**given, **step)
                for row, env in zip(rows, which, strict=True):
                    lists.add(env, row)
        elif operation == "bootstrap":
            bootstrap(buffer, lists)
        elif operation == "clear":
            buffer.clear()
            lists.columns = [[] for _ in range(ENVS)]
        elif operation == "clear env":
            buffer.clear(env=rest[0])
            lists.columns[rest[0]] = []
        elif operation == "finish":
            check_finish(buffer, lists)
        elif operation == "penalty":
            pass
        check_same(buffer, lists)
    check_finish(buffer, lists)
