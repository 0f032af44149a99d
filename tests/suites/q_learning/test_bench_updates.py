"""The plain update is right, every contender makes the same one, and a wrong one is found out."""

from dataclasses import replace

import numpy as np
import pytest
from train import plain_update

from loopless.bench.contest import enter
from suites.q_learning import plain, suite
from suites.q_learning.updates import Learned, Plain, Rules, Update, difference, random_layers

CASE = Update(8, (5,), 2, repeats=2)

pytestmark = pytest.mark.slow


def name(contender):
    return contender.name


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("max_norm", [0.05, None])
def test_the_plain_update_is_the_one_written_in_lists(double, max_norm):
    rules = Rules(double=double, max_norm=max_norm, rate=0.01)
    plain = Plain(CASE.online, CASE.target, rules, np.float64)
    online, target = (
        tuple(part.astype(float).tolist() for layer in layers for part in layer)
        for layers in (CASE.online, CASE.target)
    )
    adam = plain_update.Adam(len(plain_update.flat(online)), rules.rate)
    for start in (0, 16):
        rows = slice(start, start + 16)
        batch = {name: values[rows] for name, values in CASE.stored.items()}
        plain.update(batch)
        columns = zip(*(values.tolist() for values in batch.values()), strict=True)
        listed = [dict(zip(batch, row, strict=True)) for row in columns]
        _, gradient, _ = plain_update.gradients(
            listed, online, target, "double" if double else "dqn", gamma=rules.gamma, kind="huber"
        )
        shortened, _ = plain_update.clipped(plain_update.flat(gradient), max_norm)
        theta = adam.step(plain_update.flat(online), shortened)
        online = plain_update.shaped(theta, 4, 5, 2)
    np.testing.assert_allclose(suite.as_vector(plain.online.layers), theta, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "contender", [suite.OURS, suite.BY_HAND, *plain.EAGER_CONTENDERS], ids=name
)
def test_contenders_learn_what_the_plain_update_learns(contender):
    row = enter(contender, "update", CASE).row
    assert (row.status, row.reason) == ("ok", "")
    assert row.max_error is not None


def wrong(prepare, change):
    """A contender whose answer is changed before it is looked at."""

    def prepared(case):
        call = prepare(case)
        return replace(call, read=lambda out: change(call.read(out)))

    return replace(suite.BY_HAND, prepare=prepared)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: replace(x, rules=replace(x.rules, double=False)),
        lambda x: replace(x, rules=replace(x.rules, max_norm=1e-4)),
        lambda x: replace(x, indices=x.indices[::-1]),
        lambda x: replace(x, layers=[(w + 2e-5, b) for w, b in x.layers]),
        lambda x: replace(x, layers=random_layers((6,), 1)),
        lambda x: replace(x, indices=x.indices[:1]),
        lambda x: replace(x, rules=replace(x.rules, gamma=0.98)),
    ],
)
def test_another_update_is_found_out_on_all_rows(change):
    row = enter(wrong(suite.BY_HAND.prepare, change), "update", CASE).row
    assert row.status == "disagrees"
    assert row.reason


def test_a_kink_is_given_other_rows():
    """The first answer differs, as it may where relu's input is 0; the second decides."""
    seen = []

    def prepared(case):
        call = suite.BY_HAND.prepare(case)
        seen.append(case.seed)

        def read(out):
            found = call.read(out)
            return replace(found, layers=random_layers((5,), 7)) if case.seed == 0 else found

        return replace(call, read=read)

    row = enter(replace(suite.BY_HAND, prepare=prepared), "update", CASE).row
    assert (row.status, seen) == ("ok", [0, 1])


def test_no_difference_is_overlooked():
    layers = random_layers((5,), 1)
    other = [(w.copy(), b.copy()) for w, b in layers]
    other[1][1][0] += 0.5
    assert difference(layers, layers) == 0
    assert difference(layers, other) == pytest.approx(0.5)
    other[0][0][0, 0] = np.nan
    assert not difference(layers, other) <= 1e-5


def test_a_result_that_is_not_finite_is_wrong():
    layers = [(np.full_like(w, np.nan), b) for w, b in CASE.online]
    learned = Learned(np.zeros((4, 8), int), layers, CASE.rules)
    assert "nan" in CASE.compare(1e-5, learned).reason


@pytest.mark.parametrize(
    ("proposal", "status"),
    [
        (plain.SHIPPED, "ok"),
        (plain.WITHOUT_THE_LINE, "ok"),
        (plain.NO_GRAD, "failed"),
        (plain.RESIDUAL, "disagrees"),
        (plain.ONE_PASS, "ok"),
        (plain.SLOTS, "ok"),
        (plain.PREFETCH, "ok"),
        (plain.MEGA, "disagrees"),
        (plain.ACCUMULATED, "disagrees"),
    ],
)
def test_proposals_are_what_they_are(proposal, status):
    (contender,) = [each for each in plain.PROPOSALS if each.name == proposal]
    assert enter(contender, "proposals", Update(8, (5,), 3)).row.status == status


def test_accumulation_is_a_mega_batch_in_pieces():
    case, found = Update(8, (5,), 3), []
    for event in (plain._mega, plain._accumulated):
        learner, sampler = plain.start(case)
        rows = sampler.rows(24)
        sampler.rows = iter((rows,) if event is plain._mega else rows.chunk(3)).__next__
        sampler.rows = lambda _, draw=sampler.rows: draw()
        event(learner, sampler, case)
        found.append(plain.layers_of(learner.online))
    assert difference(*found) < 1e-7


def test_the_full_suite_has_the_shapes_and_calls_that_are_promised():
    assert suite.SHAPES == ((32, (64,)), (64, (256, 128)), (128, (120, 84)))
    assert suite.CALLS == (1, 2, 4, 8, 32)
