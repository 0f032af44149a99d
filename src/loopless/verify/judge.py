"""Judge a function: every property on many cases, the smallest failing one, and what it means.

    report = judge(my_gae, "gae")

Nothing here depends on the machine but how many cases the time is enough for. Imports the rest of
`verify`. Tests: `tests/verify/test_wrong_functions.py`, `tests/verify/test_right_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

import numpy as np

from loopless.refusals import did_you_mean
from loopless.verify import comparing, libraries
from loopless.verify.calling import Caller, Refused, TimeUp
from loopless.verify.contracts import CONTRACTS
from loopless.verify.contracts.contract import Contract
from loopless.verify.diagnosis import GRADIENTS, SENTENCES, Seen, diagnose
from loopless.verify.forms import hidden
from loopless.verify.plans import Options, UsageError
from loopless.verify.properties import Property
from loopless.verify.samplers import judge as samplers
from loopless.verify.search import find_plan
from loopless.verify.sources import SHAPES, SMALL, Seeded, smallest
from loopless.verify.tables import table
from loopless.verify.verdicts import AGREES, DIFFERS, FRAGILE, Finding, Report


@dataclass
class _Outcome:
    got: Mapping[str, np.ndarray] | None
    allowed: comparing.Allowed
    wrong: bool
    words: str = ""


def judge(function: Callable, claim: str, options: Options | None = None, name: str = "") -> Report:
    """What is to be said of `function` as an implementation of `claim`."""
    options = options or Options()
    name = name or getattr(function, "__qualname__", type(function).__name__)
    if claim in samplers.SAMPLERS:
        return samplers.judge(function, claim, options, name)
    if claim not in CONTRACTS:
        raise UsageError(unknown(claim))
    return _Judge(function, CONTRACTS[claim], options, name).report()


def known() -> tuple[str, ...]:
    """All that a function can claim to be."""
    return (*CONTRACTS, *samplers.SAMPLERS)


def unknown(claim: str) -> str:
    return f"unknown --as {claim!r}.{did_you_mean(claim, known(), repr, or_list=True)}"


class _Judge:
    def __init__(self, function, contract: Contract, options: Options, name: str) -> None:
        self.contract, self.options = contract, options
        self.end = monotonic() + options.seconds
        self.plan = find_plan(
            function, contract, options.request, options.seconds / 3, options.call_s
        )
        self.caller = Caller(function, contract, self.plan, options.call_s)
        self.hidden = hidden(self.plan.mapping.values())
        self.seen: list[Seen] = []
        self.leaks: list[str] = []
        # JAX compiles every operation anew for each shape.
        self.shapes = SHAPES[:2] if self.plan.library == "jax" else SHAPES
        how = f"{libraries.NAMES[self.plan.library]}, {self.plan.layout.words}"
        if self.plan.dtype != "float64":
            how += f", {self.plan.dtype}"
        self._report = Report(name, contract.name, dict(self.plan.mapping), how)

    def report(self) -> Report:
        report = self._report
        chosen = [one for one in self.contract.properties if self._applies(one)]
        shares = sum(one.share for one in chosen)
        for one in chosen:
            count = max(1, round(self.options.cases * one.share / shares))
            report.findings.append(self._judged(one, count))
        report.findings.append(self._repeats())
        if self.contract.slopes is not None and self.plan.library != "numpy":
            report.findings += self._gradients()
        failing = [f for f in report.findings if f.status != AGREES]
        if failing:
            known = [*diagnose(self.seen, self.contract, self.hidden), *self.leaks]
            report.diagnosis = list(dict.fromkeys(known))
            if self.options.smallest:
                report.failing = self._smallest(failing)
        self._note()
        if self.options.timing:
            from loopless.verify.speed import measure

            report.timing = measure(self.caller, self.contract, self._settled)
        return report

    def _applies(self, one: Property) -> bool:
        given = set(self.plan.mapping.values())
        if one.truncates and not self.options.truncation:
            return False
        return all(set(group.split("|")) & given for group in one.needs)

    def _settled(self, case: dict) -> dict:
        """A case as the plan needs it: with what is built into the function."""
        case = case | self.plan.settings(self.contract) | dict(self.options.request.fixed)
        if not self.options.truncation and "truncated" in case:
            given = set(self.plan.mapping.values())
            case["truncated"] = np.zeros_like(case["truncated"])
            if not given & {"next_values", "values_and_last", "last_values", "next_q"}:
                # Complete episodes alone are then what it is for.
                case["terminated"] = case["terminated"].copy()
                case["terminated"][-1] = True
        return case

    def _judged(self, one: Property, count: int) -> Finding:
        wrong, done, words, kept = 0, 0, "", [0, 0]
        most = (6, 6) if one.shrinks else (0, 1)  # right, wrong: looked at again by the diagnosis
        for i in range(count):
            if done and monotonic() > self.end:
                break
            case = self._settled(one.make(Seeded([count, i, len(one.name)], self.shapes)))
            outcome = self._outcome(case)
            done, wrong = done + 1, wrong + outcome.wrong
            words = words or outcome.words
            if outcome.got is not None and kept[outcome.wrong] < most[outcome.wrong]:
                kept[outcome.wrong] += 1
                seen = Seen(one.name, case, outcome.got, outcome.allowed, outcome.wrong)
                self.seen.append(seen)
            if wrong >= 100 or (outcome.words and wrong >= 3):
                break
        return Finding(one.name, self._status(wrong, one.strict), done, wrong, words)

    def _status(self, wrong: int, strict: bool) -> str:
        if not wrong:
            return AGREES
        return DIFFERS if strict or self.options.strict else FRAGILE

    def _outcome(self, case: dict) -> _Outcome:
        want = self.contract.answer(case)
        try:
            got = self.caller(case, want)
        except TimeUp:
            return _Outcome(None, {}, True, f"takes longer than {self.options.call_s:g} s")
        except Refused as problem:
            return _Outcome(None, {}, True, str(problem))
        except Exception as problem:  # whatever a stranger's code raises
            line = (str(problem).strip().splitlines() or ["no message"])[0]
            return _Outcome(None, {}, True, f"raises {type(problem).__name__}: {line[:160]}")
        allowed = self._allowed(case, want)
        return _Outcome(got, allowed, not comparing.same(got, want, allowed))

    def _allowed(self, case: Mapping, want: Mapping) -> comparing.Allowed:
        coarse = ("float32",) if self.plan.coarse else ()
        dtypes = (self.plan.dtype, *self.caller.watch.dtypes, *coarse)
        found = comparing.tolerance(self.contract, case, want, dtypes)
        return {**dict.fromkeys(want, max(map(np.max, found.values()))), **found}

    def _gradients(self) -> list[Finding]:
        """Whether the loss has the right derivatives, and none where there must be none."""
        made = [one for one in self.contract.properties if self._applies(one) and one.strict][:3]
        cases = [
            self._settled(one.make(Seeded([3, i], self.shapes[:1]))) for one in made for i in (0, 1)
        ]
        given = set(self.plan.mapping.values())
        constants = [name for name in self.contract.constants if name in given]
        wrong, leaks, words = 0, set(), ""
        for case in cases:
            want = self.contract.slopes(case) if self.contract.slopes else {}
            try:
                got = self.caller.gradients(case, (*self.contract.by, *constants))
            except (TimeUp, Exception) as problem:
                words = f"has no gradient: {type(problem).__name__}: {problem}"[:160]
                return [Finding(GRADIENTS, DIFFERS, len(cases), len(cases), words)]
            leaks |= {name for name in constants if np.any(got.pop(f"by_{name}") != 0)}
            got = {k: x for k, x in got.items() if k in want}
            allowed = self._allowed(case, want)
            off = not comparing.same(got, want, allowed)
            wrong += off
            self.seen.append(Seen(GRADIENTS, case, got, allowed, off))
        found = [Finding(GRADIENTS, self._status(wrong, True), len(cases), wrong)]
        if constants:
            status = self._status(len(leaks), False)
            words = f"reach {', '.join(sorted(leaks))}" if leaks else ""
            name = "no gradients by constants"
            found.append(Finding(name, status, len(cases), len(cases) if leaks else 0, words))
            self.leaks = [SENTENCES[self.contract.constants[name]] for name in sorted(leaks)]
        return found

    def _repeats(self) -> Finding:
        """Whether the first case gets the same answer again, after all the others."""
        name, case = (
            "the same answer again",
            self._settled(self.contract.properties[0].make(Seeded([0, 0], self.shapes))),
        )
        first, second = self._outcome(case), self._outcome(case)
        same = first.got is None or (
            second.got is not None and comparing.same(second.got, first.got, first.allowed)
        )
        words = "" if same else "answers the same question in two ways"
        return Finding(name, self._status(not same, True), 2, int(not same), words)

    def _smallest(self, failing: list[Finding]):
        """The smallest case of the first property that fails and can be shown as a table."""
        by_name = {one.name: one for one in self.contract.properties}
        strict = sorted(failing, key=lambda f: f.status != DIFFERS)
        for finding in strict:
            one = by_name.get(finding.name)
            if one is None or finding.words or not one.shrinks:
                continue
            left = max(2.0, min(5.0, self.end - monotonic()))
            case = smallest(
                lambda source, one=one: self._settled(one.make(source)),
                lambda case: self._outcome(case).wrong,
                left,
                SMALL[:3] if self.plan.library == "jax" else SMALL,
            )
            if case is None:  # nothing small fails: the first of the others, then
                case = next((s.case for s in self.seen if s.property == one.name and s.wrong), None)
            if case is not None and (outcome := self._outcome(case)).got is not None:
                want = self.contract.answer(case)
                return table(one.name, self.caller, case, outcome.got, want, outcome.allowed)
        return None

    def _note(self) -> None:
        notes, watch, given = self._report.notes, self.caller.watch, self.plan.mapping
        one_flag = {"treats_truncation_as_termination", "takes_done_for_terminated"}
        if one_flag & {one.mistake for one in self.hidden}:
            flag = next(k for k, form in given.items() if form in ("done", "not_done", "starts"))
            said = (
                f"It is given one flag, `{flag}`, so that truncation cannot be told from "
                "termination"
            )
            if self.options.truncation:
                said += "; --no-truncation judges it for environments without time limits."
            else:
                said += ": it was judged on episodes that are never cut off."
            notes.append(said)
        if watch.changed:
            notes.append(f"It changes its input: {', '.join(sorted(watch.changed))}.")
        if watch.printed:
            notes.append("It prints while it works.")
        if self.plan.dtype == "float64" and "float32" in watch.dtypes:
            notes.append("It computes in float32 what it is given in float64.")
        elif self.plan.coarse:
            notes.append("It is exact to float32 only, for what it is given in float64.")
        if self.plan.left:
            notes.append(f"Left at their defaults: {', '.join(self.plan.left)}.")
        if self.plan.variant:
            said = ", ".join(f"{k}={v}" for k, v in self.plan.variant.items())
            notes.append(f"Judged as {self.contract.name} with {said}.")
