"""The χ² check passes what follows a law, and fails what does not."""

import numpy as np
import pytest

from loopless.verify.samplers.laws import misfit

LAW = np.arange(1, 65) / np.arange(1, 65).sum()


def draws(law, count=20_000, seed=0):
    return np.random.default_rng(seed).choice(len(law), count, p=law)


@pytest.mark.parametrize("count", [1, 10, 300, 20_000])
@pytest.mark.parametrize("seed", range(10))
def test_right_draws_pass(count, seed):
    assert misfit(draws(LAW, count, seed), LAW) == ""


def test_another_law_fails():
    assert "χ²" in misfit(draws(np.full(64, 1 / 64)), LAW)


def test_a_law_that_is_slightly_off_fails():
    bent = LAW**1.2
    assert "χ²" in misfit(draws(bent / bent.sum()), LAW)


def test_what_cannot_be_drawn_fails_at_once():
    law = np.append(LAW, 0.0)
    assert misfit(np.append(draws(LAW), 64), law) == "1 of 20001 draws have probability 0"


def test_what_lies_outside_fails():
    assert misfit(np.array([64]), LAW) == "draws lie outside the law's cells"


def test_rare_cells_are_merged():
    law = np.append(np.full(1000, 1e-9), 1 - 1e-6)
    assert misfit(np.append(np.full(5000, 1000), 3), law) == ""
