"""Numbered steps of a stream, and the rollout buffer's loop twin, which is lists of them."""

import numpy as np
import pytest
import torch

from loopless.replay import RolloutBuffer

FIELDS = {"obs": {"near": ((2,), "float32"), "far": ((), np.float64)}, "row": ((), torch.int64)}
GAMMA, LAMBDA = 0.9, 0.8
FINISH = {"gamma": GAMMA, "lambda_": LAMBDA}
STEPS, ENVS = 6, 3
LAST_VALUES = np.array([0.3, -0.7, 0.9])
both_libraries = pytest.mark.parametrize("library", ["numpy", "torch"])
both_autoresets = pytest.mark.parametrize("autoreset", ["same_step", "next_step"])


def host(x):
    return np.asarray(x)


def make(library="numpy", steps=STEPS, envs=ENVS, fields=FIELDS, **options):
    return RolloutBuffer(steps, envs, fields, library=library, **options)


def row_of(number, end=""):
    """Return step `number` of a stream; its contents tell it apart from all others."""
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
    """Return the arguments of `add` for one step, or for a list with one of each environment."""
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


STEP = step_of([row_of(env) for env in range(ENVS)])


def order(buffer, **options):
    return np.concatenate([host(batch["row"]) for batch in buffer.minibatches(5, **options)])


def as_bytes(state):
    return {
        name: (host(value).dtype.str, host(value).shape, host(value).tobytes())
        for name, value in state.items()
    }


def gae_by_loop(rows, last_value, next_step):
    """Return the advantages of one environment, step by step; 0 where the step is a reset."""
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
    """The loop twin of the rollout buffer: a list of dictionaries for each environment."""

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
        """Return value(row) at each filled cell and 0 elsewhere, [longest, envs]."""
        longest = range(max(map(len, self.columns)))
        cells = [[value(c[t]) if t < len(c) else 0 for c in self.columns] for t in longest]
        return np.array(cells).reshape(len(longest), ENVS)
