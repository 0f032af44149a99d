"""Resident and peak memory move with what is held."""

import numpy as np

from loopless.bench.resident import peak_bytes, resident_bytes

SIZE, SLACK = 64 << 20, 2 << 20  # the system adds pages up now and then


def test_what_is_held_counts_and_what_was_held_stays_in_the_peak():
    before = resident_bytes()
    held = np.ones(SIZE, np.uint8)
    during = resident_bytes()
    del held
    assert during - before > 0.9 * SIZE
    assert resident_bytes() < during - 0.9 * SIZE
    assert peak_bytes() >= during - SLACK
