"""Every known mistake is told from the truth by the same checks that the kernels pass."""

import numpy as np
import pytest
from support import avatarl, laplacian, policy_gradient, q_learning
from support.compare import assert_all_close, assert_close
from support.situations import situations

import loopless as ll
from loopless import reference
from loopless.verify.contracts import ESTIMATORS
from loopless.verify.mutants import MUTANTS

SITUATIONS = situations()
CHECKS = q_learning.CHECKS | policy_gradient.CHECKS | laplacian.CHECKS | avatarl.CHECKS


def check_estimator(label, function):
    """Raise AssertionError at the first situation in which `function` differs from the loop."""
    estimator = ESTIMATORS[label]
    for situation in SITUATIONS:
        expected = estimator.call(estimator.twin, situation.data)
        with np.errstate(all="ignore"):
            got = estimator.call(function, situation.data)
        assert_all_close(got, expected, what=situation.name)


def scan_problems():
    rng = np.random.default_rng(0)
    for steps in (1, 7, 2000):
        a = rng.uniform(0.2, 0.9, (steps, 3))
        yield a, rng.standard_normal((steps, 3)), rng.standard_normal(3)
    cuts = rng.uniform(0.2, 0.9, (40, 3)) * (rng.random((40, 3)) < 0.7)
    yield cuts, rng.standard_normal((40, 3)), None


def check_scan(function):
    for a, b, init in scan_problems():
        for reverse in (True, False):
            want = reference.affine_scan(a, b, init, reverse=reverse)
            assert_close(function(a, b, init, reverse=reverse), want)
    a, b = np.random.default_rng(1).uniform(0, 1, (2, 5, 5))
    want = reference.affine_scan(a, b, time_axis=1)
    assert_close(function(a, b, time_axis=1), want)


def check_normalize(function):
    rng = np.random.default_rng(2)
    x = 3 + rng.standard_normal((20, 4))
    valid = rng.random((20, 4)) < 0.6
    for arguments in (
        (x, None),
        (x, valid),
        (np.where(valid, x, np.nan), valid),
        (np.full((5, 2), 0.1), None),
        (x[:1, :1], None),
    ):
        assert_close(function(*arguments), reference.normalize(*arguments))


def check(label, function):
    if label == "affine_scan":
        check_scan(function)
    elif label == "normalize":
        check_normalize(function)
    elif label in CHECKS:
        CHECKS[label](function)
    else:
        check_estimator(label, function)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutant_is_caught(mutant):
    with pytest.raises(AssertionError):
        check(mutant.estimator, mutant.function)


@pytest.mark.slow
@pytest.mark.parametrize("label", sorted({m.estimator for m in MUTANTS}))
def test_the_kernel_passes_what_catches_its_mutants(label):
    losses = q_learning.KERNELS | policy_gradient.KERNELS | laplacian.KERNELS | avatarl.KERNELS
    others = {"affine_scan": ll.affine_scan, "normalize": ll.normalize, **losses}
    check(label, others.get(label) or ESTIMATORS[label].kernel)


@pytest.mark.parametrize("label", sorted({m.estimator for m in MUTANTS}))
def test_the_twin_passes_what_catches_its_mutants(label):
    others = {"affine_scan": reference.affine_scan, "normalize": reference.normalize}
    losses = q_learning.TWINS | policy_gradient.TWINS | laplacian.TWINS | avatarl.TWINS
    twin = (others | losses).get(label)
    check(label, twin or ESTIMATORS[label].twin)


def test_every_mutant_has_a_sentence_for_its_author():
    clipped = [m.name for m in MUTANTS if not m.sentence.endswith(".") or len(m.sentence) <= 30]
    assert clipped == []


def test_mutants_have_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
