"""The original's form as contenders: as it was, and with each proposal of the founding note alone.

Imports JAX when prepared. Tests: `tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

from functools import partial

from loopless.bench.contest import Contender
from suites.allo_speed.cases import TOLERANCE, Follower, Learning

ORIGINAL, ALL = "original form", "proposed: all eight"
STEPS = 20  # in a call; with proposals so many that one row is logged
LOGGED = 100
OVERALL = "part of “2–3× overall”"


def plain(case: Learning, **switches: bool):
    """A run of the original's form, on the case's walks."""
    from suites.allo_speed.plain import Form, Plain

    walks = case.walks
    arguments = case.layers, case.coordinates, walks.obs, walks.terminals, case.rules, case.batch
    return Plain(*arguments, form=Form(**switches))


def _prepare(case: Learning, steps: int = STEPS, **switches: bool) -> Follower:
    run = plain(case, **switches)
    return Follower(partial(run.run, steps), lambda _: None, plain(case, **switches).follow)


def _proposal(number: int, what: str, claim: str, note: str, **switches: bool) -> Contender:
    prepare = partial(_prepare, steps=LOGGED, **switches)
    name = f"proposed {number}: {what}"
    return Contender(name, "jax", "proposal", prepare, TOLERANCE, claim=claim, note=note)


NOTE = (
    "host sampling, three eager gathers and a dispatch a step; without its plots, unless they are "
    "named"
)
CONTENDER = Contender(ORIGINAL, "jax", "reference", _prepare, TOLERANCE, note=NOTE)
LOGGING = Contender(
    ORIGINAL, "jax", "reference", partial(_prepare, steps=LOGGED), TOLERANCE, note=NOTE
)
NO_OP = "no-op: XLA makes the same program of it"
SWITCHES = {
    "table_sampling": True, "one_encoder_call": True, "plots": False, "one_gather": True,
    "matmul": True, "batched_fetch": True, "reused_eye": True, "jitted_gate": True,
}  # fmt: skip
PROPOSALS = (
    _proposal(
        1, "sampling vectorised", "“50–70 %” of a step",
        "real; that share holds only where an update takes less than a millisecond",
        table_sampling=True,
    ),
    _proposal(
        2, "one encoder call for three batches", OVERALL,
        "drags the batch without a gradient through the backward pass", one_encoder_call=True,
    ),
    _proposal(
        3, "plots out of the loop", OVERALL, "real; ours draws them in another process", plots=False
    ),
    _proposal(
        4, "one gather of coordinates", OVERALL, "still outside of the compiled update",
        one_gather=True,
    ),
    _proposal(5, "@ in place of einsum", OVERALL, NO_OP, matmul=True),
    _proposal(
        6, "metrics fetched at once", OVERALL, "once in a hundred steps", batched_fetch=True
    ),
    _proposal(7, "eye reused, products regrouped", OVERALL, NO_OP, reused_eye=True),
    _proposal(8, "jit on the gate's helper", OVERALL, NO_OP, jitted_gate=True),
    Contender(
        ALL, "jax", "proposal", partial(_prepare, steps=LOGGED, **SWITCHES), TOLERANCE,
        claim="“2–3×” overall",
    ),
)  # fmt: skip
DRAWS_NO_PLOTS = {PROPOSALS[2].name, ALL}
