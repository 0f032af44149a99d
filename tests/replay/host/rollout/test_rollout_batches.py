"""Minibatches and sequences: each row once an epoch, in an order that is the seed's alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollouts import (
    ENVS,
    STEPS,
    both_libraries,
    fill,
    host,
    make,
    order,
    row_of,
    step_of,
)


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


@both_libraries
def test_batches_of_a_buffer_that_changed_are_refused(library):
    buffer = make(library)
    fill(buffer, 2)
    batches = buffer.minibatches(2)
    next(batches)
    fill(buffer, 1)
    with pytest.raises(RuntimeError, match="Ask for new batches"):
        next(batches)
