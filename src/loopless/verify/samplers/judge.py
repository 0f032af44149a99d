"""Judge samplers by the laws of what they draw: nothing that draws at random has one right answer.

A sampler is called for batch after batch with fresh randomness, and all draws are held against
`sampler_laws`. Imports NumPy and the rest of `verify`. Tests: `tests/verify/test_samplers.py`.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from loopless.verify import libraries
from loopless.verify.calling import TimeUp, limited, muted
from loopless.verify.plans import Options, UsageError, spellings
from loopless.verify.samplers.laws import Priorities, Ring, Stream
from loopless.verify.verdicts import AGREES, DIFFERS, Finding, Report, Timing

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
    """What is to be said of a sampler."""
    mapping, left = _mapping(function, claim, options)
    worlds = _worlds(claim, mapping, options)
    caller = _working(function, mapping, worlds[0], options)
    report = Report(
        name, claim, mapping, f"{libraries.NAMES[caller.library]}, drawn again and again"
    )
    if left:
        report.notes.append(f"Left at their defaults: {', '.join(left)}.")
    end = monotonic() + options.seconds
    found: dict[str, Finding] = {}
    for number, world in enumerate(worlds):
        draws = DRAWS if number == 0 else DRAWS // 2
        outputs, words, alike = caller.draw(world, draws, end)
        if words:
            found["draws"] = Finding("draws", DIFFERS, 1, 1, words)
            continue
        if number == 0:
            finding = Finding("new draws each time", DIFFERS if alike else AGREES, 2, int(alike))
            found[finding.name] = finding
            if alike:
                report.diagnosis.append(
                    "Draws the same batch each time: its generator is made anew in every call."
                )
                break
        for problem in world.problems(_pairs(claim, outputs, world), BATCH):
            before, wrong = found.get(problem.name), bool(problem.words)
            cases = len(outputs[0]) + (before.cases if before else 0)
            wrong_words = problem.words or (before.words if before else "")
            status = DIFFERS if wrong or (before and before.status == DIFFERS) else AGREES
            found[problem.name] = Finding(problem.name, status, cases, words=wrong_words)
            if wrong and problem.diagnosis:
                report.diagnosis.append(problem.diagnosis)
    report.diagnosis = _telling(report.diagnosis)
    report.findings = list(found.values())
    if options.timing and report.equal:
        report.timing = _timing(caller, claim, worlds[0], options)
    return report


def _telling(diagnoses: list[str]) -> list[str]:
    """Each once. Where pairs cross ends, what else is wrong with them follows from it."""
    found = list(dict.fromkeys(diagnoses))
    crossing = [words for words in found if "cross episode ends" in words]
    return crossing[-1:] or found


def _mapping(function, claim, options) -> tuple[dict[str, str], list[str]]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UsageError("it has no signature that can be read. Wrap it in a function.") from None
    mapping, unknown, left = {}, [], []
    asked = options.request.maps
    for wrong in [x for x in asked.values() if x not in SAMPLERS[claim]]:
        raise UsageError(f"--map …={wrong}: {claim} has {', '.join(SAMPLERS[claim])}.")
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        found = asked.get(p.name) or _meaning(p.name, claim, set(mapping.values()))
        if found:
            mapping[p.name] = found
        elif p.default is p.empty:
            unknown.append(p.name)
        else:
            left.append(p.name)
    if unknown:
        raise UsageError(
            f"cannot tell what {', '.join(map(repr, unknown))} of its parameters mean. Say so with "
            f"--map {unknown[0]}=NAME, where NAME is one of: {', '.join(SAMPLERS[claim])}."
        )
    given = set(mapping.values())
    missing = [" or ".join(group) for group in NEEDS[claim] if not given & set(group)]
    missing = [x for x in missing if x not in options.request.fixed]
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


def _worlds(claim: str, mapping: Mapping[str, str], options: Options) -> list[Any]:
    given, fixed = set(mapping.values()), dict(options.request.fixed)
    if claim == "uniform_sampler":
        return [Ring(37), Ring(1)]
    if claim == "prioritized_sampler":
        alpha = fixed.get("alpha", ALPHA if "alpha" in given else None)
        beta = fixed.get("beta", BETA if "beta" in given else None)
        return [Priorities(alpha, beta)]
    gamma = float(fixed.get("gamma", 0.9))
    rng = np.random.default_rng(0)
    many = tuple(int(n) for n in rng.integers(2, 9, 160))
    return [Stream((2, 5, 9, 9, 3, 12), gamma), Stream(many, gamma)]


@dataclass
class _Sampler:
    function: Callable
    mapping: Mapping[str, str]
    library: str
    randomness: Callable[[int], Any] | None
    call_s: float

    def call(self, world: Any, seed: int, batch: int = BATCH) -> Any:
        known = {**world.given(), "alpha": ALPHA, "beta": BETA, "batch_size": batch}
        if isinstance(world, Priorities):
            known |= {"alpha": world.alpha, "beta": world.beta}
        arguments = {
            p: self.randomness(seed) if ours == "rng" and self.randomness else
            libraries.array(self.library, known.get(ours), "float64")
            for p, ours in self.mapping.items()
        }  # fmt: skip
        return self.function(**arguments)

    def outputs(self, world: Any, seed: int) -> list[np.ndarray]:
        with limited(self.call_s), muted():
            result = self.call(world, seed)
            found = [np.array(libraries.to_numpy(x)) for _, x in libraries.outputs(result)]
        if len(found) == 1 and found[0].ndim == 2 and 2 in found[0].shape:
            pairs = found[0] if found[0].shape[0] == 2 else found[0].T
            found = list(pairs)
        return found

    def draw(self, world: Any, draws: int, end: float) -> tuple[list[np.ndarray], str, bool]:
        """All draws put together; or what went wrong; and whether every batch was the same."""
        batches = []
        for number in range(max(2, draws // BATCH)):
            if number >= 40 and monotonic() > end:
                break
            try:
                found = self.outputs(world, number)
            except TimeUp:
                return [], f"takes longer than {self.call_s:g} s", False
            except Exception as problem:  # whatever a stranger's code raises
                return [], f"raises {type(problem).__name__}: {problem}"[:200], False
            wrong = [x.shape for x in found[:2] if x.shape != (BATCH,)]
            if wrong or not found:
                return [], f"gives back shape {wrong[0] if wrong else ()}, not ({BATCH},)", False
            batches.append(found)
        alike = all(np.array_equal(batches[0][0], one[0]) for one in batches[1:20])
        return [np.concatenate(x) for x in zip(*batches, strict=True)], "", alike


def _pairs(claim: str, outputs: list[np.ndarray], world: Any) -> list[np.ndarray]:
    """For pairs: start and successor, where a function may give start and gap, or all three."""
    if claim != "geometric_sampler" or len(outputs) < 2:
        if claim == "geometric_sampler":
            raise UsageError("a geometric_sampler gives back starts and successors (or gaps).")
        return outputs
    first, second = outputs[:2]
    # Gaps are small whatever the start; successors follow it.
    if second.max() <= max(world.lengths) and second.mean() < first.mean() / 2:
        second = first + second
    return [first, second]


def _working(function: Callable, mapping, world, options: Options) -> _Sampler:
    """The sampler with the library and the kind of randomness that it takes."""
    asked = options.request.library
    names = (asked,) if asked else libraries.evidence(function)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  for functions that draw from the global one
    problems = []
    for library in names:
        if library == "torch":
            import torch

            torch.manual_seed(0)
        kinds = list(_randomness(library)) if "rng" in mapping.values() else [None]
        for randomness in kinds:
            sampler = _Sampler(function, mapping, library, randomness, options.call_s)
            try:
                sampler.outputs(world, 0)
            except (TimeUp, Exception) as problem:
                problems.append(f"{type(problem).__name__}: {problem}"[:200])
                continue
            return sampler
    raise UsageError(
        f"none of {len(problems)} ways to call it worked; the first raised {problems[0]}. "
        "Use --map or --library to say how it is called."
    )


def _randomness(library: str) -> Iterator[Callable[[int], Any]]:
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


def _timing(sampler: _Sampler, claim: str, world: Any, options: Options) -> Timing | None:
    """A large batch from a large buffer: theirs, and our buffer's."""
    from loopless.bench.timing import Budget, Race
    from loopless.verify.samplers.speed import large, ours

    big, own, words = large(claim), ours(claim), "256 of 100,000"
    try:
        with limited(20.0), muted():
            sampler.call(big, 0, 256)
            own()
            calls = {"theirs": lambda: libraries.waited(sampler.call(big, 1, 256)), "ours": own}
            race = Race(calls, Budget(total_s=0.4, most_samples=50))
            race.run()
    except (TimeUp, Exception):  # too slow, or too large for it
        return None
    found = race.timings()
    return Timing(words, found["theirs"].median, found["ours"].median)
