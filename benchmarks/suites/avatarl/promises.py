"""What the loss promises, judged on the rows of one case. Nothing here measures.

A variant is judged beside the code that it stands for, and the default beside all of it. Imports
`targets` and the names of contenders. Tests:
`tests/suites/avatarl/test_bench_avatarl_promises.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, as_rate, at_most, attach, ratio, speeds, stated
from suites.avatarl import contenders as by
from suites.avatarl.contenders import ours
from suites.avatarl.losses import Losses

SMALL, LARGE = 65, 50304  # vocabularies for which something is promised
LOOP = {("JAX", SMALL): 60, ("PyTorch", SMALL): 20, ("JAX", LARGE): 5, ("PyTorch", LARGE): 5}
FORMS = {("JAX", SMALL): 6, ("PyTorch", SMALL): 2, ("JAX", LARGE): 3, ("PyTorch", LARGE): 3}
ENTROPY = {"PyTorch": (by.TORCH_ENTROPY, 1.6), "JAX": (by.JAX_ENTROPY, 2.8)}
PLAIN_STEP = 0.45  # of the tokens a second that plain cross-entropy makes
EXTRA = 0.6  # of one array of the logits' size
# What a variant has to beat: the code of the same loss. The default beats all.
OTHERS = {
    "fixed": (by.LOOPED, by.SUBSET, by.FULL),
    "original": (by.LOOPED,),
    "subset": (by.SUBSET,),
    "full": (by.FULL,),
}


def judge(case: Losses, rows: Rows) -> list[Measurement]:
    """Times of forward and backward."""
    rows = list(rows)
    for library in ("JAX", "PyTorch"):
        where = (library, case.vocabulary)
        for variant, others in OTHERS.items() if where in LOOP else ():
            factors = {x: (LOOP if x == by.LOOPED else FORMS)[where] for x in others}
            name = ours(library, variant)
            rows = attach(rows, name, as_fast(rows, name, factors))
        rows = attach(rows, ours(library, "fixed"), _beside_entropy(case, library, rows))
    return rows


def _beside_entropy(case: Losses, library: str, rows: Rows) -> list:
    found, (name, limit) = speeds(rows), ENTROPY[library]
    times = ratio(found.get(name), found.get(ours(library, "fixed")))
    if case.vocabulary == LARGE:
        return [at_most(limit, times, f"{limit:g} × {name}")]
    return [stated(times, f"× {name}")]


def judge_memory(rows: Rows) -> list[Measurement]:
    """Parts of one array of the logits' size, beyond logits and gradient."""
    rows = list(rows)
    for library in ("JAX", "PyTorch"):
        name = ours(library, "fixed")
        held = next((row.value for row in rows if row.contender == name), None)
        rows = attach(rows, name, [at_most(EXTRA, held, f"{EXTRA:g} of one [N, V] float32 array")])
    return rows


def judge_training(tokens: Mapping[str, int], rows: Rows) -> list[Measurement]:
    """Tokens a second end to end; `tokens` of a call, by contender."""
    from suites.avatarl import torch_training, training

    rows = [as_rate(row, tokens[row.contender], "tokens/s") for row in rows]
    by_library = (
        (training.OURS, training.OURS_ENTROPY),
        (torch_training.OURS, torch_training.ENTROPY),
    )
    found = speeds(rows)
    for name, entropy in by_library:
        rows = attach(rows, name, as_fast(rows, name, {entropy: PLAIN_STEP}))
        forms = torch_training.TODAY, torch_training.ORIGINAL
        told = [
            stated(ratio(found.get(name), found.get(form)), f"× as fast as {form}")
            for form in forms
        ]
        rows = attach(rows, name, told)
    return rows
