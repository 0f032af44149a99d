"""The suite `avatarl`: the loss beside the code it replaces, its memory, and whole updates.

The cases and their right answers are in `losses.py`; the loss by every contender, from the looped
original on, is in `plain.py`; updates of a student are in `training.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Call, Contender, Contest, Verdict
from loopless.bench.machine import prepare_libraries
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, attach, beside, ratio, stated, values
from loopless.bench.timing import Budget
from loopless.process import peak_bytes, resident_bytes
from pages import Lines, grid, proposals, section
from suites.avatarl import plain
from suites.avatarl.losses import METHOD, Losses
from suites.avatarl.plain import FULL, JAX_ENTROPY, LOOPED, SUBSET, TORCH_ENTROPY, our_name
from suites.processes import jax, jnp, measure_numbers, probe, torch
from suites.promises import as_rates, limit

SMALL = (Losses(65, 4, 4096), Losses(65, 16, 4096))
LARGE = Losses(50304, 4, 256)
CASES = {"loss": (*SMALL, LARGE), "proposals": (SMALL[1], LARGE), "top_k": (*SMALL, LARGE)}
QUICK_CASES = {"loss": SMALL[:1], "proposals": SMALL[1:], "top_k": SMALL[:1]}
HELD, QUICK_HELD = Losses(50304, 4, 4096), LARGE  # whose memory is measured
SAMPLE_S = 2e-3

TITLES = {
    "loss": "Loss and gradient, forward and backward: median time, ± half the quartiles",
    "memory": "Memory beyond logits and gradient, in arrays of the logits' size",
    "training": "Training end to end: critic, model, loss, gradient, AdamW; tokens a second",
    "proposals": "Proposals of the founding note and of those after it, beside the looped original",
    "top_k": "The k largest logits of each row, by every algorithm of ours: what each one gains",
}
HEADLINES = (
    Headline(
        "AvataRL's loss: 256 tokens of 50,304, gradient included, PyTorch", "loss",
        "V = 50304, k = 4, N = 256", "loopless, PyTorch",
        (("the looped original", "the loop it replaces"),
         ("its vectorisation today", "as it was vectorised")),
        "five",
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    total = 0.3 if options.quick else 5.0
    contest = Contest(result, Budget(SAMPLE_S, total_s=total), say)
    prepare_libraries(options.threads)
    result.settings |= {**METHOD._asdict(), "dtype": "float32", "jax_async_dispatch": False}
    cases = QUICK_CASES if options.quick else CASES
    measure("loss", cases["loss"], contest)
    measure_memory(QUICK_HELD if options.quick else HELD, contest)
    if not options.quick:
        from suites.avatarl.training import Training

        measure_training(Training(), contest.with_budget(total_s=20.0))
    if options.ablate:
        measure("proposals", cases["proposals"], contest)
        measure("top_k", cases["top_k"], contest)


def measure(section: str, cases: Iterable[Losses], contest: Contest) -> None:
    """Race the contenders of a section on each case."""
    for case in cases:
        if section == "loss":
            contest.run(section, case, plain.CONTENDERS, partial(judge, case))
        elif section == "proposals":
            contest.run(section, case, plain.PROPOSAL_CONTENDERS)
        else:  # which algorithms can be used depends on the vocabulary
            is_short = case.vocabulary == SMALL_V
            contest.run(section, TopK(case), SHORT_TOP_K if is_short else LONG_TOP_K)


def measure_training(case: Any, contest: Contest) -> None:
    """Race whole updates, as `loopless train` makes them and as eager PyTorch does."""
    from suites.avatarl import training

    mine, eager = training.JAX_CONTENDERS, training.TORCH_CONTENDERS
    tokens = {each.name: case.size * training.UPDATES for each in mine}
    tokens |= {each.name: case.size for each in eager}
    contest.run("training", case, (*mine, *eager), partial(judge_training, tokens))


@dataclass(frozen=True)
class TopK:
    """The tokens of the student's k largest logits; of equal logits the first counts."""

    losses: Losses

    @property
    def label(self) -> str:
        return self.losses.label

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare the tokens with NumPy's stable sort."""
        expected = np.argsort(-self.losses.arrays[0], -1, kind="stable")[:, : self.losses.top_k]
        return Verdict("" if np.array_equal(call.read(output), expected) else "other tokens")


def _compiled_top_k(kernel: str, case: TopK) -> Call:
    """Return a call of our compiled kernel, which finds the k largest and sums of exponentials."""
    from loopless.compiled import logits

    student, k = case.losses.arrays[0], case.losses.top_k
    count, size = student.shape
    top, summary = np.empty((k, count), np.int64), np.empty((3, count), np.float32)
    masks = (None,) if kernel == "_survey_long" else ()
    fields = student.ravel(), np.arange(count) * size, size, np.float32(1), *masks, top
    fields = *fields, np.empty((k, count), np.float32), summary
    survey = getattr(logits, kernel)
    return Call(lambda: survey(*fields), lambda _: top.T)


def _jax_top_k(function: str, case: TopK) -> Call:
    from loopless.arrays.logits import jax as engine

    student = jnp.asarray(case.losses.arrays[0])
    program = jax.jit(partial(getattr(engine, function), k=case.losses.top_k))
    return Call(lambda: jax.block_until_ready(program(student)), lambda out: np.asarray(out[1]))


ROW_BY_ROW, BESIDE, SELECTED, INSERTED, IN_BLOCKS = (
    Contender(name, library, "proposal", partial(prepare, engine))
    for name, library, prepare, engine in (
        ("compiled, row by row", "loopless", _compiled_top_k, "_survey_long"),
        ("compiled, rows side by side", "loopless", _compiled_top_k, "_survey_short"),
        ("JAX, selected one by one", "jax", _jax_top_k, "select"),
        ("JAX, inserted in order", "jax", _jax_top_k, "insert_in_order"),
        ("JAX, selected in blocks", "jax", _jax_top_k, "select_in_blocks"),
    )
)
SHORT_TOP_K = ROW_BY_ROW, BESIDE, SELECTED, INSERTED
LONG_TOP_K = ROW_BY_ROW, SELECTED, IN_BLOCKS


def page(result: Result) -> list[Lines]:
    """Lay out the results page: times, memory, training, and what was proposed."""
    heads = {
        "loss": "loss and gradient",
        "memory": "memory beyond logits and gradient",
        "training": "training, end to end",
        "top_k": "the k largest of each row",
    }
    grids = [grid(head, section(result, name)) for name, head in heads.items()]
    return [*grids, *proposals(result, "measured")]


SMALL_V, LARGE_V = 65, 50304  # vocabularies for which something is promised
LOOP_FACTORS = {
    ("JAX", SMALL_V): 60, ("PyTorch", SMALL_V): 20, ("JAX", LARGE_V): 5, ("PyTorch", LARGE_V): 5,
}  # fmt: skip
FORM_FACTORS = {
    ("JAX", SMALL_V): 6, ("PyTorch", SMALL_V): 2, ("JAX", LARGE_V): 3, ("PyTorch", LARGE_V): 3,
}  # fmt: skip
ENTROPY_LIMITS = {"PyTorch": (TORCH_ENTROPY, 1.6), "JAX": (JAX_ENTROPY, 2.8)}
PLAIN_STEP = 0.45  # at least this share of the tokens a second of plain cross-entropy
EXTRA = 0.6  # at most this share of one array of the logits' size
# Variant → the code that it must beat: that of the same loss. The default must beat all.
TO_BEAT = {
    "fixed": (LOOPED, SUBSET, FULL),
    "original": (LOOPED,),
    "subset": (SUBSET,),
    "full": (FULL,),
}


def judge(case: Losses, rows: Rows) -> list[Measurement]:
    """Judge the times of loss and gradient: against each original, and against cross-entropy."""
    rows = list(rows)
    for library in ("JAX", "PyTorch"):
        where = (library, case.vocabulary)
        for variant, others in TO_BEAT.items() if where in LOOP_FACTORS else ():
            factors = {x: (LOOP_FACTORS if x == LOOPED else FORM_FACTORS)[where] for x in others}
            name = our_name(library, variant)
            rows = attach(rows, name, as_fast(rows, name, factors))
        name, (entropy, most) = our_name(library, "fixed"), ENTROPY_LIMITS[library]
        if case.vocabulary == LARGE_V:
            rows = limit(rows, {name: most}, f"× {entropy}", of=entropy)
        else:
            slower = ratio(values(rows).get(name), values(rows).get(entropy))
            rows = attach(rows, name, [stated(slower, f"× {entropy}")])
    return rows


def judge_training(tokens: Mapping[str, int], rows: Rows) -> list[Measurement]:
    """Judge tokens a second end to end; `tokens` has the tokens of a call, by contender."""
    from suites.avatarl import training

    rows = as_rates(rows, tokens.__getitem__, "tokens/s")
    by_library = (
        (training.OURS, training.OURS_ENTROPY),
        (training.TORCH_OURS, training.TORCH_ENTROPY_STEP),
    )
    forms = training.TORCH_TODAY, training.TORCH_ORIGINAL
    for name, entropy in by_library:
        promised = as_fast(rows, name, {entropy: PLAIN_STEP})
        rows = attach(rows, name, [*promised, *beside(rows, name, forms)])
    return rows


OUR_LOSS, TODAYS_FORM, PLAIN_ENTROPY = "ours", "today", "entropy"  # what a child can run
FORMS = {
    OUR_LOSS: plain.our_loss,
    TODAYS_FORM: partial(plain.vectorised, full=True),
    PLAIN_ENTROPY: plain.entropy_in_torch,
}


def measure_memory(case: Losses, contest: Contest) -> None:
    """Measure the memory of each beyond logits and gradient, in arrays of the logits' size."""
    sizes = case.vocabulary, case.top_k, case.count
    ways = (
        (our_name("JAX", "fixed"), "loopless", partial(in_jax, case)),
        (our_name("PyTorch", "fixed"), "loopless", partial(probe, in_torch, OUR_LOSS, *sizes)),
        (FULL, "torch", partial(probe, in_torch, TODAYS_FORM, *sizes)),
        (TORCH_ENTROPY, "torch", partial(probe, in_torch, PLAIN_ENTROPY, *sizes)),
    )
    rows = measure_numbers(contest, "memory", case.label, "arrays", ways, "reference")
    limits = {our_name(library, "fixed"): EXTRA for library in ("JAX", "PyTorch")}
    contest.keep(limit(rows, limits, "of one [N, V] float32 array"))


def in_jax(case: Losses) -> float:
    """Return the temporary memory of the compiled JAX program, which is not run."""
    logits = jax.ShapeDtypeStruct((case.count, case.vocabulary), jnp.float32)
    gold = jax.ShapeDtypeStruct((case.count,), jnp.int32)
    loss_of = partial(ll.avatarl_loss, top_k=case.top_k)
    program = jax.jit(jax.value_and_grad(loss_of, has_aux=True)).lower(logits, logits, gold)
    held = program.compile().memory_analysis()
    if held is None:
        raise RuntimeError("this backend of JAX does not tell what its programs hold")
    return held.temp_size_in_bytes / (4 * case.size)


def in_torch(what: str, *sizes: int) -> float:
    """Return the peak memory of this process, less what it held before and less the gradient."""
    case = Losses(*sizes)

    def inputs(count: int) -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        shape = (count, case.vocabulary)
        student = torch.randn(shape, generator=generator).requires_grad_()
        gold = torch.randint(case.vocabulary, (count,), generator=generator)
        return [student, torch.randn(shape, generator=generator), gold]

    form = partial(FORMS[what], k=case.top_k)
    form(*inputs(8))[0].backward()  # loads the code and compiles kernels
    arrays = inputs(case.count)
    before = resident_bytes()
    form(*arrays)[0].backward()
    gradient = 4 * case.size
    return max(0.0, peak_bytes() - before - gradient) / gradient
