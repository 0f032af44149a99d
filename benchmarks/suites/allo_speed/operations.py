"""How much a step computes: floating-point operations of the compiled programs.

As XLA counts them, which sees nothing of what a program calls: so here all products and Adam's
steps are XLA's own.
Imports JAX. Tests: `tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

from loopless.bench.result import Measurement, Role
from suites.allo_speed.cases import Learning

UNIT = "MFLOP"


def rows(case: Learning) -> list[Measurement]:
    """A row for the original's update, for that with one encoder call, and for ours."""
    from suites.allo_speed import contenders, ours

    one_call = contenders.PROPOSALS[1].name
    return [
        _row(case, contenders.ORIGINAL, "jax", "reference", of_plain(case)),
        _row(case, one_call, "jax", "proposal", of_plain(case, one_encoder_call=True)),
        _row(case, ours.OURS, "loopless", "ours", of_ours(case)),
        _row(case, ours.BY_BATCHES, "loopless", "ours", of_ours(case, encode="batches")),
    ]


def of_plain(case: Learning, **switches: bool) -> float:
    """Of the compiled update, sampling and gathers apart."""
    from suites.allo_speed.contenders import plain

    run = plain(case, **switches)
    batches = [run.coordinates[rows] for rows in case.stream[0]]
    return _counted(run.update.lower(run.params, run.moments, *batches))


def of_ours(case: Learning, **changes: Any) -> float:
    """Of one update, sampling apart."""
    import jax
    import jax.numpy as jnp

    from loopless.arrays.xla_cpu import product as jax_product
    from loopless.train.allo.data import Batch
    from loopless.train.engine import optimizer
    from suites.allo_speed.ours import started

    run = started(case, **changes)
    learner = run.algorithm.init(jax.random.key(0), jnp.float32(0.5))
    drawn = Batch(*map(jnp.asarray, case.stream[0]))
    step = jax.jit(run.algorithm.update)
    with (
        patch.object(jax_product, "LEAST", math.inf),
        patch.object(optimizer, "NATIVE_SIZE", math.inf),
    ):
        lowered = step.lower(learner, run.table, drawn, jnp.int32(0))
    return _counted(lowered)


def _counted(lowered: Any) -> float:
    return 1e-6 * lowered.compile().cost_analysis()["flops"]


def _row(case: Learning, name: str, library: str, role: Role, value: float) -> Measurement:
    return Measurement("operations", case.label, name, library, role, unit=UNIT, value=value)
