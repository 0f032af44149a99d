"""Memory of the loss: a child is asked, a compiler is asked, and a failure is a row."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Result
from loopless.bench.timing import Budget
from suites.avatarl import suite
from suites.avatarl.losses import Losses

CASE = Losses(1000, 2, 64)


@pytest.mark.slow
def test_a_child_tells_what_cross_entropy_takes():
    # Its log-softmax and its gradient of it: two arrays of the logits' size, and little else.
    assert 1.5 < suite.probe(suite.in_torch, suite.PLAIN_ENTROPY, 50304, 4, 128) < 2.6


def test_every_probe_has_a_row_and_a_failure_is_one(monkeypatch):
    def fails(*_):
        raise RuntimeError("none left")

    monkeypatch.setattr(suite, "probe", fails)
    monkeypatch.setattr(suite, "in_jax", lambda case: 0.25)
    result = Result("avatarl", {})
    suite.measure_memory(CASE, Contest(result, Budget(), lambda _: None))
    rows = result.measurements
    assert [(row.status, row.value) for row in rows] == [("ok", 0.25), *[("failed", None)] * 3]
    assert rows[1].reason == "none left"
