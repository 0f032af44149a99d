"""The prioritized ring against a linear scan: law, weights, tree, refusals."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loopless.compiled.tree import descend
from loopless.reference.replay import (
    PriorityList,
    TransitionList,
    draw_by_priority,
    importance_weights,
)
from loopless.replay.host.prioritized import Linear, PrioritizedReplayBuffer

FIELDS = {"obs": ((3,), np.float32), "number": ((), np.int64)}


def rows(first, count):
    numbers = np.arange(first, first + count)
    return {"obs": np.stack([numbers, -numbers, 2 * numbers], 1).astype("f4"), "number": numbers}


def with_priorities(priorities, capacity=None, alpha=1.0, kind=PrioritizedReplayBuffer, seed=0):
    buffer = kind(capacity or len(priorities), FIELDS, alpha=alpha, seed=seed)
    buffer.add(**rows(0, len(priorities)))
    buffer.update_priorities(np.arange(len(priorities)), np.asarray(priorities, np.float64))
    return buffer


def as_bytes(state):
    return {
        name: (v.dtype.name, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v
        for name, v in state.items()
    }


def check_tree(buffer):
    """Every parent is the sum of its children, exactly."""
    tree = buffer._tree
    nodes = np.arange(1, tree.size // 2)
    np.testing.assert_array_equal(tree[nodes], tree[2 * nodes] + tree[2 * nodes + 1])


def chi_square(drawn, law):
    """Chi-square of draws against probabilities, over its bound of four standard deviations."""
    counts = np.bincount(drawn.reshape(-1), minlength=len(law))
    assert not counts[law == 0].any()
    wanted = drawn.size * law[law > 0]
    degrees = len(wanted) - 1
    value = ((counts[law > 0] - wanted) ** 2 / wanted).sum()
    return value / (degrees + 4 * (2 * degrees) ** 0.5)


class PrioritizedMachine(RuleBasedStateMachine):
    """Buffer, list of transitions and list of priorities, driven side by side."""

    @initialize(capacity=st.sampled_from([1, 7, 11, 50]), alpha=st.sampled_from([0.0, 0.6, 1.0]))
    def start(self, capacity, alpha):
        self.buffer = PrioritizedReplayBuffer(capacity, FIELDS, alpha=alpha, seed=3)
        self.twin, self.priorities = TransitionList(capacity), PriorityList(capacity, alpha)
        self.number = 0

    @rule(count=st.integers(1, 60))
    def add(self, count):
        given = rows(self.number, count)
        self.buffer.add(**given)
        for k in range(count):
            self.twin.add({name: array[k] for name, array in given.items()})
            self.priorities.add()
        self.number += count

    @rule(data=st.data())
    def update(self, data):
        if len(self.buffer):
            slot, number = st.integers(0, len(self.buffer) - 1), st.integers(0, 64)
            pairs = data.draw(st.lists(st.tuples(slot, number), max_size=30))
            slots, given = [s for s, _ in pairs], [p / 8 for _, p in pairs]
            self.buffer.update_priorities(np.array(slots, np.int64), np.array(given))
            self.priorities.update(slots, given)

    @rule(batch=st.integers(1, 9), batches=st.sampled_from([None, 3]), beta=st.floats(0, 1))
    def sample(self, batch, batches, beta):
        held = self.buffer.priorities
        if len(self.buffer) < batch or not held.any():
            with pytest.raises(RuntimeError, match=r"fewer than|priorities are 0"):
                self.buffer.sample(batch, batches)
            return
        drawn = self.buffer.sample(batch, batches, beta=beta)
        assert drawn["indices"].shape == ((batch,) if batches is None else (batches, batch))
        assert (held[drawn["indices"]] > 0).all()
        for slot, obs, number in zip(
            drawn["indices"].reshape(-1).tolist(),
            drawn["obs"].reshape(-1, 3),
            drawn["number"].reshape(-1),
            strict=True,
        ):
            assert self.twin.at(slot)["number"] == number
            np.testing.assert_array_equal(self.twin.at(slot)["obs"], obs)
        for slots, weights in zip(
            drawn["indices"].reshape(-1, batch), drawn["weights"].reshape(-1, batch), strict=True
        ):
            wanted = importance_weights(held[slots].tolist(), held.sum(), len(held), beta)
            np.testing.assert_allclose(weights, wanted, rtol=1e-6)

    @rule()
    def restore(self):
        other = PrioritizedReplayBuffer(
            self.buffer.capacity, FIELDS, alpha=self.buffer.alpha, seed=9
        )
        other.restore(self.buffer.state())
        assert as_bytes(other.state()) == as_bytes(self.buffer.state())
        np.testing.assert_array_equal(other._tree, self.buffer._tree)
        self.buffer = other

    @invariant()
    def same_priorities(self):
        if hasattr(self, "buffer"):
            wanted = self.priorities.slots[: len(self.buffer)]
            np.testing.assert_allclose(self.buffer.priorities, wanted, rtol=1e-14)
            assert not self.buffer._tree[self.buffer._leaves + len(self.buffer) :].any()
            check_tree(self.buffer)


TestPrioritized = PrioritizedMachine.TestCase
TestPrioritized.settings = settings(max_examples=25, stateful_step_count=15)


@given(
    priorities=st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any),
    uniforms=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_the_tree_draws_what_a_linear_scan_draws(priorities, uniforms):
    buffer = with_priorities(np.array(priorities) / 4)
    targets = np.array(uniforms) * buffer._tree[1]
    indices = np.empty(len(targets), np.int64)
    descend(buffer._tree, targets.copy(), indices)
    assert indices.tolist() == draw_by_priority([p / 4 for p in priorities], targets.tolist())


@given(
    priorities=st.lists(
        st.one_of(st.just(0.0), st.floats(1e-300, 1e300)), min_size=1, max_size=40
    ).filter(any),
    uniforms=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_rounding_never_leads_to_a_slot_of_priority_0(priorities, uniforms):
    buffer = with_priorities(priorities)
    indices = np.empty(len(uniforms), np.int64)
    descend(buffer._tree, np.array(uniforms) * buffer._tree[1], indices)
    assert (np.array(priorities)[indices] > 0).all()


@pytest.mark.parametrize("capacity", [1, 7, 11, 1_000_003])
def test_any_capacity(capacity):
    buffer = PrioritizedReplayBuffer(capacity, FIELDS, alpha=1.0)
    buffer.add(**rows(0, capacity))
    buffer.update_priorities(np.array([capacity - 1]), np.array([3.0 * capacity]))
    drawn = buffer.sample(1, 400)
    share = (drawn["indices"] == capacity - 1).mean()
    law = 3 * capacity / (4 * capacity - 1)
    assert abs(share - law) <= 4 * math.sqrt(law * (1 - law) / 400)
    np.testing.assert_array_equal(drawn["number"], drawn["indices"])
    check_tree(buffer)
    assert buffer._tree[1] == capacity - 1 + 3 * capacity


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_draws_follow_priorities_by_chi_square(alpha, seed):
    given = np.array([0, 1, 2, 4, 8, 0, 3, 5, 0.5, 1, 0])
    raised = np.where(given == 0, 0, given**alpha)
    buffer = with_priorities(given, capacity=13, alpha=alpha, seed=seed)
    drawn = buffer.sample(1, 20_000)["indices"]  # batches of one: no strata
    assert chi_square(drawn, raised / raised.sum()) < 1


def test_draws_are_stratified():
    buffer = with_priorities([1.0] * 16)
    assert (buffer.sample(16, 50)["indices"] == np.arange(16)).all()


def test_weights_are_those_of_the_closed_form():
    # p = 1, 2, 4, 8 among 100 items of sum 50, β = 0.4; the q_learning fixture
    priorities = np.array([1.0, 2, 4, 8] + [35 / 96] * 96)
    weights = importance_weights([1.0, 2, 4, 8], 50.0, 100, 0.4)
    np.testing.assert_allclose(weights, [1, 0.757858, 0.574349, 0.435275], rtol=2e-6)
    priorities[4:] = 0  # so that 1 is the least of the batch
    buffer = with_priorities(priorities)
    batch = buffer.sample(60, beta=0.4)
    wanted = dict(zip(range(4), weights, strict=True))
    assert set(batch["indices"].tolist()) == {0, 1, 2, 3}
    np.testing.assert_allclose(
        batch["weights"], [wanted[i] for i in batch["indices"].tolist()], rtol=1e-6
    )
    assert batch["weights"].dtype == np.float32


def check_weights(buffer):
    held = buffer.priorities
    batch = buffer.sample(20, beta=0.5)
    wanted = importance_weights(held[batch["indices"]].tolist(), float(held.sum()), len(held), 0.5)
    np.testing.assert_allclose(batch["weights"], wanted, rtol=1e-6)


def test_the_root_is_the_sum_of_the_leaves_after_many_updates():
    buffer = with_priorities(np.ones(1000), alpha=0.6)
    check_many_updates(buffer)


def check_many_updates(buffer):
    generator = np.random.default_rng(0)
    for _ in range(100):
        slots = generator.integers(0, 1000, 1000)
        buffer.update_priorities(slots, 10.0 ** generator.uniform(-6, 6, 1000))
    leaves = buffer._tree[buffer._leaves :].copy()
    fresh = np.concatenate([np.zeros_like(leaves), leaves])
    for node in range(len(leaves) - 1, 0, -1):
        fresh[node] = fresh[2 * node] + fresh[2 * node + 1]
    assert buffer._tree[1] == fresh[1]
    np.testing.assert_array_equal(buffer._tree[1:], fresh[1:])


def test_e19_beta_0_weighs_equally_and_alpha_0_draws_uniformly():
    buffer = with_priorities(np.arange(1.0, 12), alpha=0.0)
    assert (buffer.sample(11, beta=0.0)["weights"] == 1).all()
    assert chi_square(buffer.sample(1, 20_000)["indices"], np.full(11, 1 / 11)) < 1
    skewed = with_priorities(np.arange(1.0, 12))
    assert (skewed.sample(11, beta=0.0)["weights"] == 1).all()
    assert chi_square(skewed.sample(1, 20_000)["indices"], np.full(11, 1 / 11)) > 10


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_e20_priority_0_is_never_drawn_and_none_at_all_is_an_error(alpha):
    buffer = with_priorities([0.0, 1.0, 0.0, 0.0], capacity=6, alpha=alpha)
    assert (buffer.sample(4, 500)["indices"] == 1).all()
    buffer.update_priorities([1], [0.0])
    before = as_bytes(buffer.state())
    with pytest.raises(RuntimeError, match="all priorities are 0"):
        buffer.sample(1)
    assert as_bytes(buffer.state()) == before


def test_e21_the_last_of_a_duplicate_wins():
    buffer = with_priorities(np.ones(7))
    buffer.update_priorities([3, 2, 3, 6, 3], [9.0, 2.0, 8.0, 4.0, 0.5])
    assert buffer.priorities.tolist() == [1, 1, 2, 0.5, 1, 1, 4]
    check_tree(buffer)
    assert buffer._tree[1] == buffer.priorities.sum()
    np.testing.assert_array_equal(buffer._peak, [9.0])


@pytest.mark.parametrize("filled", [1, 5, 8])
def test_e22_a_target_of_the_whole_sum_or_more_ends_at_the_last_filled_leaf(filled):
    buffer = with_priorities(np.full(filled, 0.1), capacity=8)
    total = buffer._tree[1]
    indices = np.empty(3, np.int64)
    descend(buffer._tree, np.array([total, total * (1 + 1e-12), 2 * total]), indices)
    assert indices.tolist() == [filled - 1] * 3


def test_new_items_have_the_largest_priority_so_far():
    buffer = PrioritizedReplayBuffer(5, FIELDS, alpha=0.5)
    buffer.add(**rows(0, 2))
    assert buffer.priorities.tolist() == [1, 1]
    buffer.update_priorities([0], [16.0])
    buffer.update_priorities([0], [0.25])
    buffer.add(**{name: array[0] for name, array in rows(2, 1).items()})
    assert buffer.priorities.tolist() == [0.5, 1, 4]
    buffer.add(**rows(3, 4))  # around the seam
    assert buffer.priorities.tolist() == [4, 4, 4, 4, 4]
    assert buffer.sample(5)["number"].tolist() == [5, 6, 2, 3, 4]


def test_beta_may_be_a_schedule_of_the_batches_drawn():
    seen = []
    buffer = with_priorities([1.0, 4.0])

    def schedule(step):
        seen.append(step)
        return 0.5

    buffer.sample(2, beta=schedule)
    buffer.sample(2, 3, beta=schedule)
    copy.deepcopy(buffer).sample(1, beta=schedule)
    assert seen == [0, 1, 4]
    linear = Linear(0.4, 1.0, 10)
    assert [linear(0), linear(5), linear(10), linear(99)] == pytest.approx([0.4, 0.7, 1, 1])
    assert 1 in buffer.sample(2, beta=linear)["weights"]


def test_batches_in_one_call_are_the_batches_of_single_calls_and_out_is_written():
    first, second, third = (with_priorities(np.arange(1.0, 51)) for _ in range(3))
    together = first.sample(8, 5)
    out = second.sample(8)
    assert second.sample(8, out=out) is out
    single = [third.sample(8) for _ in range(5)]
    for name in ("obs", "number", "weights", "indices"):
        np.testing.assert_array_equal(out[name], together[name][1])
        np.testing.assert_array_equal(np.stack([b[name] for b in single]), together[name])


def test_windows_are_drawn_by_priority_too():
    fields = {"reward": ((), "float32"), "next_obs": ((), "int32"), "terminated": ((), "bool"),
              "truncated": ((), "bool")}  # fmt: skip
    buffer = PrioritizedReplayBuffer(10, fields, n_step=3, gamma=0.5)
    for t in range(12):
        buffer.add(reward=1.0, next_obs=t + 1, terminated=t == 6, truncated=False)
    buffer.update_priorities(np.arange(10), np.zeros(10))
    buffer.update_priorities([5, 9, 1], [1.0, 1.0, 1.0])  # times 5, 9 and 11, the newest
    batch = buffer.sample(3)
    assert batch["indices"].tolist() == [1, 5, 9]
    assert batch["reward"].tolist() == [1, 1.5, 1.75]
    assert batch["discount"].tolist() == [0.5, 0.25, 0.125]
    assert batch["next_obs"].tolist() == [12, 7, 12]
    assert batch["terminated"].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("indices", "priorities", "error", "text"),
    [
        ([1, 2], [1.0, np.nan], ValueError, "priority nan at position 1"),
        ([1, 2], [np.inf, 1.0], ValueError, "priority inf at position 0"),
        ([1, 2], [1.0, -1e-9], ValueError, "priority -1e-09 at position 1"),
        ([1, 2], [1.0, 1.7e308], ValueError, "too large"),
        ([1, 2], [1.0], ValueError, r"indices has shape \(2,\) but priorities has shape \(1,\)"),
        ([1, 5], [1.0, 2.0], IndexError, "index 5 is not one of the 5 filled"),
        ([1, -1], [1.0, 2.0], IndexError, "index -1"),
        ([1.0, 2.0], [1.0, 2.0], TypeError, "indices has dtype float64"),
        ([1, 2], [1j, 2.0], TypeError, "priorities complex128"),
        ([True, False], [1.0, 2.0], TypeError, "indices has dtype bool"),
    ],
)
def test_wrong_priorities_are_refused_and_nothing_changes(indices, priorities, error, text):
    buffer = with_priorities([1.0, 2, 3, 4, 5], capacity=8)
    before, tree = as_bytes(buffer.state()), buffer._tree.copy()
    with pytest.raises(error, match=text):
        buffer.update_priorities(np.array(indices), np.array(priorities))
    assert as_bytes(buffer.state()) == before
    np.testing.assert_array_equal(buffer._tree, tree)


def test_no_priorities_are_no_update():
    buffer = with_priorities([1.0, 2.0])
    buffer.update_priorities([], [])
    assert buffer.priorities.tolist() == [1, 2]


def test_the_largest_priorities_do_not_overflow_the_sum():
    buffer = with_priorities([buffer_limit(7)] * 7)
    assert np.isfinite(buffer._tree[1])
    assert set(buffer.sample(7, 50)["indices"].reshape(-1).tolist()) == set(range(7))


def buffer_limit(capacity):
    return PrioritizedReplayBuffer(capacity, FIELDS, alpha=1.0)._most


@pytest.mark.parametrize("alpha", [-0.1, np.nan, np.inf, "1", True])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha must be a finite number of at least 0"):
        PrioritizedReplayBuffer(5, FIELDS, alpha=alpha)


@pytest.mark.parametrize("beta", [-0.1, np.nan, None, lambda step: "x"])
def test_a_wrong_beta_is_refused_and_draws_nothing(beta):
    buffer = with_priorities([1.0, 2.0])
    before = as_bytes(buffer.state())
    with pytest.raises(ValueError, match="beta must be a finite number of at least 0"):
        buffer.sample(2, beta=beta)
    assert as_bytes(buffer.state()) == before


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"priorities": np.full(8, 1.0)}, "0 where the slot is empty"),
        ({"priorities": np.array([1, np.nan, 1, 1, 1, 0, 0, 0])}, "must be finite"),
        ({"peak_priority": np.array([-1.0])}, "peak_priority must be at least 0; received -1"),
        ({"priorities": np.zeros(9)}, "priorities must be an array"),
        ({"size": 9, "priorities": np.zeros(8)}, "do not fit a ring of 8"),
    ],
)
def test_a_wrong_state_changes_nothing(changes, text):
    buffer = with_priorities([1.0, 2, 3, 4, 5], capacity=8)
    before = as_bytes(buffer.state())
    with pytest.raises(ValueError, match=text):
        buffer.restore(buffer.state() | changes)
    assert as_bytes(buffer.state()) == before


def test_bytes_count_the_tree():
    buffer = PrioritizedReplayBuffer(1000, FIELDS)
    assert buffer.nbytes >= buffer._tree.nbytes + buffer._rows.packed.nbytes


# Broken copies, which the checks above must catch


class AdditiveTree(PrioritizedReplayBuffer):
    """Differences are added up to the root, as SLM-Lab does."""

    def update_priorities(self, indices, priorities):
        for slot, priority in zip(indices, priorities, strict=True):
            node = self._leaves + slot
            change = priority**self.alpha - self._tree[node]
            while node >= 1:
                self._tree[node] += change
                node //= 2


class RawWeights(PrioritizedReplayBuffer):
    """Weights are not divided by the largest of the batch."""

    def sample(self, batch_size, **options):
        batch, beta = super().sample(batch_size, **options), options["beta"]
        share = self.priorities[batch["indices"]] / self._tree[1]
        return batch | {"weights": ((len(self) * share) ** -beta).astype(np.float32)}


@pytest.mark.parametrize(
    ("broken", "check", "priorities"),
    [
        (AdditiveTree, check_many_updates, np.ones(1000)),
        (RawWeights, check_weights, np.arange(1.0, 51)),
    ],
)
def test_broken_copies_are_caught(broken, check, priorities):
    check(with_priorities(priorities))
    with pytest.raises(AssertionError):
        check(with_priorities(priorities, kind=broken))


def test_rounding_never_ends_in_an_empty_leaf_but_without_the_clamp_it_does():
    """D6: the right-most leaf of a tree that is not full."""

    def unclamped(tree, target):
        node = 1
        while node < tree.size // 2:
            node *= 2
            if target >= tree[node]:
                target -= tree[node]
                node += 1
        return node - tree.size // 2

    tree = with_priorities(np.full(5, 0.1), capacity=8)._tree
    target = tree[1] * (1 + 1e-12)
    indices = np.empty(1, np.int64)
    descend(tree, np.array([target]), indices)
    assert indices[0] == 4
    assert unclamped(tree, target) == 7
