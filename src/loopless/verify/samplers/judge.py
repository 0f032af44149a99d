"""Judge a sampler by the law of its draws.

The sampler is called for batch after batch with fresh randomness, and all draws together are
compared with the laws in `samplers.laws`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from loopless.verify import Options, UsageError, arrays
from loopless.verify.calling import TimeUp, limited, muted
from loopless.verify.plans import refuse_unknown, signature_of, spellings
from loopless.verify.samplers.laws import Priorities, Ring, Stream
from loopless.verify.verdicts import AGREES, DIFFERS, Finding, Report

# What parameters are called in other code.
NAMES = {
    "batch_size": "batch n_samples num_samples sample_size k count bs num batch_sz",
    "size": "buffer_size n length capacity filled total num_items current_size high",
    "rng": "key generator random_state prng seed gen prng_key rng_key",
    "priorities": "priority prios p probs weights ps",
    "alpha": "a exponent priority_exponent",
    "beta": "b is_exponent importance_exponent",
    "ends": "terminals dones done terminated terminal episode_ends end_flags marks",
    "lengths": "episode_lengths lens ep_lengths traj_lengths",
    "offsets": "episode_starts starts ep_starts",
    "gamma": "discount",
}
# The arguments that each kind of sampler may take; in NEEDS, groups of which it must take one each.
SAMPLERS = {
    "uniform_sampler": ("batch_size", "size", "rng"),
    "prioritized_sampler": ("batch_size", "priorities", "alpha", "beta", "rng", "size"),
    "geometric_sampler": ("batch_size", "ends", "lengths", "offsets", "gamma", "rng", "size"),
}
NEEDS = {
    "uniform_sampler": (("size",),),
    "prioritized_sampler": (("priorities",),),
    "geometric_sampler": (("ends", "lengths"), ("gamma",)),
}
BATCH, DRAWS = 64, 40_000
ALPHA, BETA = 0.6, 0.4


def judge(function: Callable, claim: str, options: Options, name: str) -> Report:
    """Return the report on a sampler."""
    mapping, left = _mapping(function, claim, options)
    buffers = _buffers(claim, mapping, options)
    sampler = _find_sampler(function, mapping, buffers[0], options)
    how = f"{arrays.NAMES[sampler.library]}, drawn again and again"
    report = Report(name, claim, mapping, how)
    if left:
        report.notes.append(f"Left at their defaults: {', '.join(left)}.")
    end = monotonic() + options.seconds
    findings: dict[str, Finding] = {}
    for number, buffer in enumerate(buffers):
        draws = DRAWS if number == 0 else DRAWS // 2
        outputs, words, all_alike = sampler.draw(buffer, draws, end)
        if words:
            findings["draws"] = Finding("draws", DIFFERS, 1, 1, words)
            continue
        if number == 0:
            status = DIFFERS if all_alike else AGREES
            finding = Finding("new draws each time", status, 2, int(all_alike))
            findings[finding.name] = finding
            if all_alike:
                report.diagnosis.append(
                    "Draws the same batch each time: its generator is made anew in every call."
                )
                break
        for problem in buffer.problems(_pairs(claim, outputs, buffer), BATCH):
            before = findings.get(problem.name) or Finding(problem.name, AGREES, 0)
            failed = bool(problem.words) or before.status == DIFFERS
            findings[problem.name] = Finding(
                problem.name,
                DIFFERS if failed else AGREES,
                len(outputs[0]) + before.cases,
                words=problem.words or before.words,
            )
            if problem.words and problem.diagnosis:
                report.diagnosis.append(problem.diagnosis)
    report.diagnosis = _most_telling(report.diagnosis)
    report.findings = list(findings.values())
    if options.timing and report.equal:
        from loopless.verify.speed import measure_sampler

        report.timing = measure_sampler(claim, sampler.call)
    return report


def _most_telling(diagnoses: list[str]) -> list[str]:
    """Return each diagnosis once; but if pairs cross episode ends, only that: the rest follows."""
    crossing = [words for words in diagnoses if "cross episode ends" in words]
    return crossing[-1:] or list(dict.fromkeys(diagnoses))


def _mapping(function, claim, options: Options) -> tuple[dict[str, str], list[str]]:
    """Return what each parameter means, and the parameters that are left at their defaults."""
    mapping, unknown, left = {}, [], []
    parameters, names = signature_of(function), SAMPLERS[claim]
    for name in options.maps.values():
        if name not in names:
            raise UsageError(f"--map …={name}: {claim} has {', '.join(names)}.")
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        meaning = options.maps.get(p.name) or _meaning(p.name, claim, set(mapping.values()))
        if meaning:
            mapping[p.name] = meaning
        elif p.default is p.empty:
            unknown.append(p.name)
        else:
            left.append(p.name)
    refuse_unknown(unknown, list(names))
    taken = set(mapping.values())
    missing = [" or ".join(group) for group in NEEDS[claim] if not taken & set(group)]
    missing = [x for x in missing if x not in options.fixed]
    if missing:
        raise UsageError(
            f"as {claim} it must be given {'; '.join(missing)}, and none of its parameters looks "
            f"like it. Use --map PARAMETER={missing[0].split()[0]}."
        )
    return mapping, left


def _meaning(name: str, claim: str, taken: set[str]) -> str | None:
    for spelling in spellings(name):
        for ours in SAMPLERS[claim]:
            if ours not in taken and spelling in (ours, *NAMES[ours].split()):
                return ours
    return None


def _buffers(claim: str, mapping: Mapping[str, str], options: Options) -> list[Any]:
    taken, fixed = set(mapping.values()), options.fixed
    if claim == "uniform_sampler":
        return [Ring(37), Ring(1)]
    if claim == "prioritized_sampler":
        alpha = fixed.get("alpha", ALPHA if "alpha" in taken else None)
        beta = fixed.get("beta", BETA if "beta" in taken else None)
        return [Priorities(alpha, beta)]
    gamma = float(fixed.get("gamma", 0.9))
    rng = np.random.default_rng(0)
    many = tuple(int(n) for n in rng.integers(2, 9, 160))
    return [Stream((2, 5, 9, 9, 3, 12), gamma), Stream(many, gamma)]


@dataclass
class _Sampler:
    """A sampler, called with arrays of one library and one kind of randomness."""

    function: Callable
    mapping: Mapping[str, str]
    library: str
    randomness: Callable[[int], Any] | None
    call_s: float

    def call(self, buffer: Any, seed: int, batch: int = BATCH) -> Any:
        known = {"alpha": ALPHA, "beta": BETA, **buffer.arguments(), "batch_size": batch}
        arguments = {
            p: self.randomness(seed) if ours == "rng" and self.randomness else
            arrays.to_library(self.library, known.get(ours), "float64")
            for p, ours in self.mapping.items()
        }  # fmt: skip
        return self.function(**arguments)

    def outputs(self, buffer: Any, seed: int) -> list[np.ndarray]:
        with limited(self.call_s), muted():
            result = self.call(buffer, seed)
            outputs = [np.array(arrays.to_numpy(x)) for _, x in arrays.outputs(result)]
        if len(outputs) == 1 and outputs[0].ndim == 2 and 2 in outputs[0].shape:
            return list(outputs[0] if outputs[0].shape[0] == 2 else outputs[0].T)
        return outputs

    def draw(self, buffer: Any, draws: int, end: float) -> tuple[list[np.ndarray], str, bool]:
        """Return all draws together, what went wrong if anything, and whether all are the same."""
        batches = []
        for number in range(max(2, draws // BATCH)):
            if number >= 40 and monotonic() > end:
                break
            try:
                outputs = self.outputs(buffer, number)
            except TimeUp:
                return [], f"takes longer than {self.call_s:g} s", False
            except Exception as problem:  # whatever the user's code raises
                return [], f"raises {type(problem).__name__}: {problem}"[:200], False
            misshapen = [x.shape for x in outputs[:2] if x.shape != (BATCH,)]
            if misshapen or not outputs:
                shape = misshapen[0] if misshapen else ()
                return [], f"returns shape {shape}, not ({BATCH},)", False
            batches.append(outputs)
        all_alike = all(np.array_equal(batches[0][0], batch[0]) for batch in batches[1:20])
        return [np.concatenate(x) for x in zip(*batches, strict=True)], "", all_alike


def _pairs(claim: str, outputs: list[np.ndarray], buffer: Any) -> list[np.ndarray]:
    """Return starts and successors; the function may have returned gaps in their place."""
    if claim != "geometric_sampler":
        return outputs
    if len(outputs) < 2:
        raise UsageError("a geometric_sampler returns starts and successors (or gaps).")
    first, second = outputs[:2]
    # Gaps are small whatever the start is; successors are about as large as their starts.
    if second.max() <= max(buffer.lengths) and second.mean() < first.mean() / 2:
        second = first + second
    return [first, second]


def _find_sampler(function: Callable, mapping, buffer, options: Options) -> _Sampler:
    """Return the sampler with a library and a kind of randomness that the function accepts."""
    libraries = (options.library,) if options.library else arrays.library_names(function)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  for functions that draw from the global generator
    problems = []
    for library in libraries:
        if library == "torch":
            import torch

            torch.manual_seed(0)
        kinds = list(_randomness(library)) if "rng" in mapping.values() else [None]
        for randomness in kinds:
            sampler = _Sampler(function, mapping, library, randomness, options.call_s)
            try:
                sampler.outputs(buffer, 0)
            except (TimeUp, Exception) as problem:
                problems.append(f"{type(problem).__name__}: {problem}"[:200])
                continue
            return sampler
    raise UsageError(
        f"none of {len(problems)} ways to call it worked; the first raised {problems[0]}. "
        "Use --map or --library to say how it is called."
    )


def _randomness(library: str) -> Iterator[Callable[[int], Any]]:
    """Yield functions from a seed to a generator, key or seed that code of this library expects."""
    if library == "jax":
        import jax

        yield jax.random.PRNGKey
    if library == "torch":
        import torch

        yield lambda seed: torch.Generator().manual_seed(seed)
    yield np.random.default_rng
    yield random.Random
    yield np.random.RandomState
    yield int
