"""Judge a function: test every property on many cases, find the smallest that fails, diagnose it.

    report = judge(my_gae, "gae")

The cases are the same on every machine; only how many of them are tried depends on its speed.
Samplers are judged by the law of their draws, in `verify.samplers.judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

import numpy as np

from loopless.refusals import did_you_mean
from loopless.verify import Options, UsageError, arrays
from loopless.verify.calling import Caller, Refused, TimeUp
from loopless.verify.cases.properties import Property
from loopless.verify.cases.sources import SHAPES, SMALL, Seeded, smallest
from loopless.verify.contracts import CONTRACTS
from loopless.verify.contracts.contract import Contract, Tolerances, same
from loopless.verify.diagnosis import GRADIENTS, SENTENCES, Observation, diagnose
from loopless.verify.forms import hidden
from loopless.verify.samplers import judge as samplers
from loopless.verify.search import find_plan
from loopless.verify.verdicts import AGREES, DIFFERS, FRAGILE, Failing, Finding, Report, tabulate


@dataclass
class _Outcome:
    answers: Mapping[str, np.ndarray] | None
    tolerances: Tolerances
    is_wrong: bool
    words: str = ""


def judge(function: Callable, claim: str, options: Options | None = None, name: str = "") -> Report:
    """Return the report on `function` as an implementation of `claim`."""
    options = options or Options()
    name = name or getattr(function, "__qualname__", type(function).__name__)
    if claim in samplers.SAMPLERS:
        return samplers.judge(function, claim, options, name)
    if claim not in CONTRACTS:
        raise UsageError(unknown_claim(claim))
    return _Judge(function, CONTRACTS[claim], options, name).report()


def known_claims() -> tuple[str, ...]:
    """Return everything that a function can claim to be."""
    return (*CONTRACTS, *samplers.SAMPLERS)


def unknown_claim(claim: str) -> str:
    """Return the message about a claim that is not known."""
    return f"unknown --as {claim!r}.{did_you_mean(claim, known_claims(), repr, or_list=True)}"


class _Judge:
    def __init__(self, function, contract: Contract, options: Options, name: str) -> None:
        self.contract, self.options = contract, options
        self.end = monotonic() + options.seconds
        self.plan = find_plan(function, contract, options)
        self.taken = set(self.plan.mapping.values())
        self.caller = Caller(function, contract, self.plan, options.call_s)
        self.hidden = hidden(self.plan.mapping.values())
        self.observations: list[Observation] = []  # for the diagnosis
        self.leaks: list[str] = []
        # JAX compiles every operation again for each shape.
        self.shapes = SHAPES[:2] if self.plan.library == "jax" else SHAPES
        how = f"{arrays.NAMES[self.plan.library]}, {self.plan.layout.words}"
        if self.plan.dtype != "float64":
            how += f", {self.plan.dtype}"
        self._report = Report(name, contract.name, dict(self.plan.mapping), how)

    def report(self) -> Report:
        report = self._report
        properties = [x for x in self.contract.properties if self._applies(x)]
        shares = sum(x.share for x in properties)
        for x in properties:
            count = max(1, round(self.options.cases * x.share / shares))
            report.findings.append(self._test(x, count))
        report.findings.append(self._test_repetition())
        if self.contract.slopes is not None and self.plan.library != "numpy":
            report.findings += self._test_gradients()
        failing = [f for f in report.findings if f.status != AGREES]
        if failing:
            sentences = diagnose(self.observations, self.contract, self.hidden)
            report.diagnosis = list(dict.fromkeys([*sentences, *self.leaks]))
            if self.options.smallest:
                report.failing = self._smallest(failing)
        report.notes += self._notes()
        if self.options.timing:
            from loopless.verify.speed import measure

            report.timing = measure(self.caller, self._settle)
        return report

    def _applies(self, x: Property) -> bool:
        if x.truncates and not self.options.truncation:
            return False
        return all(set(group.split("|")) & self.taken for group in x.needs)

    def _settle(self, case: dict) -> dict:
        """Return a case with the settings of the plan and the numbers built into the function."""
        case = case | self.plan.settings(self.contract) | dict(self.options.fixed)
        if not self.options.truncation and "truncated" in case:
            case["truncated"] = np.zeros_like(case["truncated"])
            if not self.taken & {"next_values", "values_and_last", "last_values", "next_q"}:
                # Without a value after the window, the function is right on complete episodes only.
                case["terminated"] = case["terminated"].copy()
                case["terminated"][-1] = True
        return case

    def _test(self, x: Property, count: int) -> Finding:
        wrong, done, words, observed = 0, 0, "", [0, 0]
        most = (6, 6) if x.shrinks else (0, 1)  # right and wrong cases for the diagnosis
        for i in range(count):
            if done and monotonic() > self.end:
                break
            case = self._settle(x.make(Seeded([count, i, len(x.name)], self.shapes)))
            outcome = self._outcome(case)
            done, wrong = done + 1, wrong + outcome.is_wrong
            words = words or outcome.words
            if outcome.answers is not None and observed[outcome.is_wrong] < most[outcome.is_wrong]:
                observed[outcome.is_wrong] += 1
                self._observe(x.name, case, outcome)
            if wrong >= 100 or (outcome.words and wrong >= 3):
                break
        return Finding(x.name, self._status(wrong, x.strict), done, wrong, words)

    def _observe(self, name: str, case: dict, outcome: _Outcome) -> None:
        self.observations.append(
            Observation(name, case, outcome.answers or {}, outcome.tolerances, outcome.is_wrong)
        )

    def _status(self, wrong: int, strict: bool) -> str:
        if not wrong:
            return AGREES
        return DIFFERS if strict or self.options.strict else FRAGILE

    def _outcome(self, case: dict) -> _Outcome:
        right_answers = self.contract.answer(case)
        try:
            answers = self.caller(case, right_answers)
        except TimeUp:
            return _Outcome(None, {}, True, f"takes longer than {self.options.call_s:g} s")
        except Refused as problem:
            return _Outcome(None, {}, True, str(problem))
        except Exception as problem:  # whatever the user's code raises
            line = (str(problem).strip().splitlines() or ["no message"])[0]
            return _Outcome(None, {}, True, f"raises {type(problem).__name__}: {line[:160]}")
        tolerances = self._tolerances(case, right_answers)
        return _Outcome(answers, tolerances, not same(answers, right_answers, tolerances))

    def _tolerances(self, case: Mapping, right_answers: Mapping) -> Tolerances:
        coarse = ("float32",) if self.plan.coarse else ()
        dtypes = (self.plan.dtype, *self.caller.watch.dtypes, *coarse)
        exact = self.contract.tolerances(case, right_answers, dtypes)
        return {**dict.fromkeys(right_answers, max(map(np.max, exact.values()))), **exact}

    def _test_gradients(self) -> list[Finding]:
        """Test that the loss has the right gradients, and none where there must be none."""
        makes = [x.make for x in self.contract.properties if self._applies(x) and x.strict][:3]
        cases = [
            self._settle(make(Seeded([3, i], self.shapes[:1]))) for make in makes for i in (0, 1)
        ]
        constants = [name for name in self.contract.constants if name in self.taken]
        wrong, leaks = 0, set()
        for case in cases:
            right_slopes = self.contract.slopes(case) if self.contract.slopes else {}
            try:
                slopes = self.caller.gradients(case, (*self.contract.by, *constants))
            except (TimeUp, Exception) as problem:
                words = f"has no gradient: {type(problem).__name__}: {problem}"[:160]
                return [Finding(GRADIENTS, DIFFERS, len(cases), len(cases), words)]
            leaks |= {name for name in constants if np.any(slopes.pop(f"by_{name}") != 0)}
            slopes = {k: x for k, x in slopes.items() if k in right_slopes}
            tolerances = self._tolerances(case, right_slopes)
            is_wrong = not same(slopes, right_slopes, tolerances)
            wrong += is_wrong
            self._observe(GRADIENTS, case, _Outcome(slopes, tolerances, is_wrong))
        findings = [Finding(GRADIENTS, self._status(wrong, True), len(cases), wrong)]
        if constants:
            status = self._status(len(leaks), False)
            words = f"reach {', '.join(sorted(leaks))}" if leaks else ""
            name = "no gradients by constants"
            findings.append(Finding(name, status, len(cases), len(cases) if leaks else 0, words))
            self.leaks = [SENTENCES[self.contract.constants[name]] for name in sorted(leaks)]
        return findings

    def _test_repetition(self) -> Finding:
        """Test, after all other cases, that the same case gets the same answer twice."""
        case = self._settle(self.contract.properties[0].make(Seeded([0, 0], self.shapes)))
        first, second = self._outcome(case), self._outcome(case)
        repeats = first.answers is None or (
            second.answers is not None and same(second.answers, first.answers, first.tolerances)
        )
        words = "" if repeats else "answers the same question in two ways"
        wrong = int(not repeats)
        return Finding("the same answer again", self._status(wrong, True), 2, wrong, words)

    def _smallest(self, failing: list[Finding]) -> Failing | None:
        """Return, as a table, the smallest case of the first failing property that can be shown."""
        by_name = {x.name: x for x in self.contract.properties}
        for finding in sorted(failing, key=lambda f: f.status != DIFFERS):
            x = by_name.get(finding.name)
            if x is None or finding.words or not x.shrinks:
                continue
            case = smallest(
                lambda source, x=x: self._settle(x.make(source)),
                lambda case: self._outcome(case).is_wrong,
                max(2.0, min(5.0, self.end - monotonic())),
                SMALL[:3] if self.plan.library == "jax" else SMALL,
            )
            if case is None:  # nothing small fails, so show the first case that did
                failed = (o.case for o in self.observations if o.property == x.name and o.is_wrong)
                case = next(failed, None)
            if case is not None and (outcome := self._outcome(case)).answers is not None:
                right_answers = self.contract.answer(case)
                return tabulate(
                    x.name, self.caller, case, outcome.answers, right_answers, outcome.tolerances
                )
        return None

    def _notes(self) -> list[str]:
        notes, watch, plan = [], self.caller.watch, self.plan
        one_flag = {"treats_truncation_as_termination", "takes_done_for_terminated"}
        if one_flag & {x.mistake for x in self.hidden}:
            flags = ("done", "not_done", "starts")
            flag = next(k for k, form in plan.mapping.items() if form in flags)
            advice = (
                "; --no-truncation judges it for environments without time limits."
                if self.options.truncation
                else ": it was judged on episodes that are never cut off."
            )
            notes.append(
                f"It is given one flag, `{flag}`, so that truncation cannot be told from "
                f"termination{advice}"
            )
        if watch.changed:
            notes.append(f"It changes its input: {', '.join(sorted(watch.changed))}.")
        if watch.printed:
            notes.append("It prints while it works.")
        if plan.dtype == "float64" and "float32" in watch.dtypes:
            notes.append("It computes in float32 what it is given in float64.")
        elif plan.coarse:
            notes.append("It is exact to float32 only, for what it is given in float64.")
        if plan.left:
            notes.append(f"Left at their defaults: {', '.join(plan.left)}.")
        if plan.variant:
            settings = ", ".join(f"{k}={v}" for k, v in plan.variant.items())
            notes.append(f"Judged as {self.contract.name} with {settings}.")
        return notes
