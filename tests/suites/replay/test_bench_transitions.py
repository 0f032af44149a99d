"""The checks of draws and of adding: right ones pass, each wrong one fails."""

import numpy as np
import pytest

from loopless.bench.contest import Call, Contender
from suites.replay.cases import (
    ALPHA,
    BETA,
    Adding,
    Prioritized,
    Sampler,
    Uniform,
    numbered,
    sampler,
    short,
    transitions,
)

COUNT, BATCH = 1000, 100
SOMEONE = Contender("some", "some", "peer", lambda case: None)


def rows(numbers, stored=None):
    stored = stored or transitions(COUNT)
    return {name: values[numbers] for name, values in stored.items()}


def right(generator):
    return rows(generator.integers(COUNT, size=BATCH))


def half_the_range(generator):
    return rows(generator.integers(COUNT // 2, size=BATCH))


def even_numbers_only(generator):
    return rows(2 * generator.integers(COUNT // 2, size=BATCH))


def one_row_too_often(generator):
    numbers = generator.integers(COUNT, size=BATCH)
    numbers[:5] = 7
    return rows(numbers)


def successors_of_others(generator):
    drawn = right(generator)
    return drawn | {"next_obs": np.roll(drawn["next_obs"], 1, axis=0)}


def half_precision(generator):
    drawn = right(generator)
    return drawn | {"reward": drawn["reward"].astype(np.float16)}


def unwritten_rows(generator):
    drawn = right(generator)
    return drawn | {"obs": np.where(np.arange(BATCH)[:, None] == 3, -1, drawn["obs"])}


def indices_off_by_one(generator):
    numbers = generator.integers(COUNT, size=BATCH)
    return rows(numbers) | {"indices": (numbers + 1) % COUNT}


def indices_of_empty_slots(generator):
    numbers = generator.integers(COUNT, size=BATCH)
    return rows(numbers) | {"indices": np.where(numbers == COUNT - 1, COUNT, numbers)}


def verdict_of_uniform(draw):
    generator = np.random.default_rng(0)
    call = sampler(lambda: draw(generator), dict)
    return Uniform(COUNT, BATCH).check(SOMEONE, call, call.run()).reason


def test_transitions_are_numbered_and_join_up_within_episodes():
    made = transitions(COUNT, 5)
    np.testing.assert_array_equal(made["obs"][:, 0], np.arange(5, COUNT + 5))
    joined = (made["next_obs"][:-1] == made["obs"][1:]).all(axis=1)
    np.testing.assert_array_equal(joined, ~made["terminated"][:-1])
    assert made["terminated"].sum() > 1


def test_right_uniform_draws_pass():
    assert verdict_of_uniform(right) == ""


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (half_the_range, "χ²"),
        (even_numbers_only, "χ²"),
        (one_row_too_often, "χ²"),
        (successors_of_others, "next_obs of"),
        (half_precision, "reward of"),
        (unwritten_rows, "were never stored"),
        (indices_off_by_one, "indices are not"),
        (indices_of_empty_slots, "indices are of slots never filled"),
    ],
)
def test_wrong_uniform_draws_fail(draw, reason):
    assert reason in verdict_of_uniform(draw)


def test_a_repeated_draw_is_checked_whole():
    generator = np.random.default_rng(0)
    call = sampler(lambda: right(generator), dict, times=4)
    assert len(call.read(call.run())["obs"]) == 4 * BATCH


class ByPriority:
    """A right prioritized sampler, and what can be wrong with one."""

    def __init__(self, alpha=ALPHA, beta=BETA, deaf=False, mixed_up=False):
        self.alpha, self.beta, self.deaf, self.mixed_up = alpha, beta, deaf, mixed_up
        self.priorities, self.generator = np.ones(COUNT), np.random.default_rng(0)

    def update(self, indices, priorities):
        if self.mixed_up:
            priorities = priorities[::-1]
        if not self.deaf:
            self.priorities[indices] = priorities

    def draw(self):
        law = self.priorities**self.alpha
        chosen = self.generator.choice(COUNT, BATCH, p=law / law.sum())
        weights = law[chosen] ** -self.beta
        return rows(chosen) | {"indices": chosen, "weights": weights / weights.max()}

    def verdict(self):
        call = Sampler(self.draw, dict, self.draw, self.update)
        return Prioritized(COUNT, BATCH).check(SOMEONE, call, call.run()).reason


def test_right_prioritized_draws_pass():
    assert ByPriority().verdict() == ""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"alpha": 0.0}, "χ²"),
        ({"alpha": 0.7}, "χ²"),
        ({"deaf": True}, "χ²"),
        ({"mixed_up": True}, "χ²"),
        ({"beta": 0.41}, "weights are off"),
        ({"beta": 0.0}, "weights are off"),
    ],
)
def test_wrong_prioritized_draws_fail(wrong, reason):
    assert reason in ByPriority(**wrong).verdict()


class Ring:
    """A right buffer to add to, and what can be wrong with one."""

    case = Adding(640, 64)

    def __init__(self, wrong=""):
        self.wrong = wrong
        self.held = {name: values.copy() for name, values in self.case.stored.items()}

    def add(self):
        new = self.case.step
        for name, values in self.held.items():
            if self.wrong == "half of it":
                values[:32] = new[name][:32]
            elif self.wrong == "one row for all":
                values[:64] = new[name][:1]
            elif self.wrong == "another row's reward" and name == "reward":
                values[:64] = new[name][::-1]
            elif self.wrong == "spills over" and name == "obs":
                values[:64] = new[name]
                values[64, 1] += 1
            elif self.wrong != "nothing":
                values[:64] = new[name]

    def verdict(self):
        call = Call(self.add, lambda _: self.held)
        return self.case.check(SOMEONE, call, call.run()).reason


def test_right_adding_passes():
    assert Ring().verdict() == ""


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("nothing", "0 of 640 rows"),
        ("half of it", "32 of 640 rows"),
        ("one row for all", "missing"),
        ("another row's reward", "reward of"),
        ("spills over", "obs of 1 of 576"),
    ],
)
def test_wrong_adding_fails(wrong, reason):
    assert reason in Ring(wrong).verdict()


def test_indices_may_name_slots_that_hold_other_rows():
    held = np.arange(COUNT)[::-1]
    drawn = rows(held[:5]) | {"indices": np.arange(5)}
    assert numbered(drawn, transitions(COUNT), held=held)[1] == ""
    assert "indices" in numbered(drawn, transitions(COUNT))[1]


@pytest.mark.parametrize(("count", "text"), [(10_010, "10k"), (100_000, "100k"), (1_001_000, "1M")])
def test_sizes_are_short(count, text):
    assert short(count) == text
