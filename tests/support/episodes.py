"""The episodic buffer beside its loop twin, a list of rows; and tests of draws against a law."""

import numpy as np

from loopless.reference import episodic as reference
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

FIELDS = {"obs": ((), np.int64)}
ROWS = [
    [0, 0],
    [0, 1, 1, 0, 0],
    [0, 0, 1, 1, 1, 1, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 1],
]
HORIZONS = [reference.horizons(row, "double") for row in ROWS]


class Beside:
    """A buffer, and the list of rows that it should hold; every observation is another number."""

    def __init__(self, capacity, convention="double", **options):
        fields = {**FIELDS, "action": ((3,), np.float32)}
        self.buffer = EpisodicReplayBuffer(capacity, fields, terminals=convention, **options)
        self.convention, self.rows, self.next, self.cursor = convention, [], 1, 0

    def add(self, marks, valid=None):
        length, capacity = len(marks), self.buffer.capacity
        obs = np.arange(self.next, self.next + length)
        action = np.repeat(obs[:, None], 3, 1).astype(np.float32)
        self.buffer.add_episode(obs=obs, action=action, terminals=np.array(marks), valid=valid)
        # Drop the oldest rows, from the cursor on, which the new row overwrites or skips.
        begin = self.cursor
        if begin + length > capacity:
            while self.rows and self.rows[0]["begin"] >= begin:
                self.rows.pop(0)
            begin = 0
        while self.rows and begin <= self.rows[0]["begin"] < begin + length:
            self.rows.pop(0)
        horizons = reference.horizons(marks, self.convention, valid)
        ones = [1.0] * length
        self.rows.append(
            {
                "begin": begin,
                "obs": obs.tolist(),
                "horizons": horizons,
                "weight": 1.0,
                "steps": ones,
            }
        )
        self.cursor, self.next = begin + length, self.next + length

    def weigh_rows(self, weights):
        self.buffer.set_row_weights(weights)
        for e, row in enumerate(self.rows):
            row["weight"] = 1.0 if weights is None else weights[e]

    def weigh_steps(self, weights):
        self.buffer.set_step_weights(weights)
        left = [1.0] * len(self.buffer) if weights is None else list(weights)
        for row in self.rows:
            row["steps"] = [left.pop(0) for _ in row["obs"]]

    def chance(self, weights=None, steps=None):
        """Return the sum of the weights of all possible starts."""
        left, total = list(steps or ()), 0.0
        for e, row in enumerate(self.rows):
            of_row = row["weight"] if weights is None else weights[e]
            of_steps = [left.pop(0) for _ in row["obs"]] if steps else row["steps"]
            total += sum(of_row * v for v, n in zip(of_steps, row["horizons"], strict=True) if n)
        return total

    def wrong_pairs(self, batch):
        """Count the drawn pairs that leave their segment, or start where no pair may start."""
        reach = {
            o: (row["begin"] + t, n if row["weight"] * v > 0 else 0)
            for row in self.rows
            for t, (o, n, v) in enumerate(
                zip(row["obs"], row["horizons"], row["steps"], strict=True)
            )
        }
        wrong = 0
        columns = (batch[name].ravel().tolist() for name in ("obs", "next_obs", "gap", "indices"))
        for start, later, gap, index in zip(*columns, strict=True):
            flat, n = reach.get(start, (-1, 0))
            wrong += not (1 <= gap <= n and later == start + gap and flat == index)
        return wrong

    def law(self, discount):
        """Return the probability of each pair (start, later) of observations, by enumeration."""
        rows = self.rows
        cells = reference.pair_probabilities(
            [row["horizons"] for row in rows],
            discount,
            self.buffer.law,
            weights=[row["weight"] for row in rows],
            step_weights=[row["steps"] for row in rows],
        )
        return {(rows[e]["obs"][t], rows[e]["obs"][t] + k): p for (e, t, k), p in cells.items()}

    def check(self, discount=0.9, draws=300):
        buffer = self.buffer
        assert buffer.rows == len(self.rows)
        assert len(buffer) == sum(len(row["obs"]) for row in self.rows)
        assert buffer.starts == sum(n > 0 for row in self.rows for n in row["horizons"])
        assert buffer.offsets.tolist() == [row["begin"] for row in self.rows]
        batch = buffer.sample(draws, discount=discount)
        assert self.wrong_pairs(batch) == 0
        assert (batch["action"] == batch["obs"][:, None]).all()
        return batch


def buffer_of(*rows, convention="double", capacity=None, **options):
    beside = Beside(capacity or sum(map(len, rows)), convention, **options)
    for row in rows:
        beside.add(row)
    return beside


def starts_of(beside, draws=2000):
    return sorted(set(beside.check(draws=draws)["indices"].tolist()))


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.asarray(value).dtype == np.asarray(other[name]).dtype
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), name


def filled(rows=ROWS, convention="double", **options):
    """Return a buffer of `rows`; each observation is (row, step)."""
    fields = {"obs": ((2,), np.int32)}
    buffer = EpisodicReplayBuffer(sum(map(len, rows)), fields, terminals=convention, **options)
    for e, row in enumerate(rows):
        steps = np.stack([np.full(len(row), e), np.arange(len(row))], 1).astype(np.int32)
        buffer.add_episode(obs=steps, terminals=np.array(row))
    return buffer


def cells(batch, later="next_obs"):
    """Count how often each (row, start, gap) was drawn, by the observations alone."""
    here, there = batch["obs"].reshape(-1, 2), batch[later].reshape(-1, 2)
    gaps = batch["gap"].ravel()
    same = (there[:, 0] == here[:, 0]) & (there[:, 1] - here[:, 1] == gaps)
    parts = here[:, 0], here[:, 1], np.where(same, gaps, 0)  # a gap of 0 is in no support
    codes, counts = np.unique(np.ravel_multi_index(parts, (64, 64, 64)), return_counts=True)
    names = np.stack(np.unravel_index(codes, (64, 64, 64)), 1).tolist()
    return {tuple(name): int(count) for name, count in zip(names, counts, strict=True)}


def likely(statistic, freedom):
    """Return whether a χ² has p ≥ 1e-4, by Wilson and Hilferty's cube root."""
    spread = 2 / (9 * freedom)
    return (statistic / freedom) ** (1 / 3) <= 1 - spread + 3.719 * spread**0.5


def fits(counts, law):
    """Return whether counts fit a law: none outside its support, and χ² has p ≥ 1e-4.

    Cells are merged until 5 draws are expected in each.
    """
    if set(counts) - set(law):
        return False
    draws = sum(counts.values())
    names = sorted(law, key=lambda name: law[name])
    observed, expected, rest = [], [], [0, 0.0]
    for name in names:
        rest = [rest[0] + counts.get(name, 0), rest[1] + law[name] * draws]
        if rest[1] >= 5:
            observed.append(rest[0])
            expected.append(rest[1])
            rest = [0, 0.0]
    observed[-1] += rest[0]
    expected[-1] += rest[1]
    observed, expected = np.array(observed), np.array(expected)
    assert abs(expected.sum() - draws) < 1e-6 * draws  # the probabilities sum to 1
    if len(observed) == 1:
        return True
    return likely(((observed - expected) ** 2 / expected).sum(), len(observed) - 1)
