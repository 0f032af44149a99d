"""How to call a function: which of its parameters is what, in which library, layout and dtype.

Names decide what a parameter is (`verify.forms`); what names leave open (a `next_value` may be one
row or all of them, arrays may have time first or last) becomes several plans, tried in turn by
`verify.judge`. Imports the standard library. Tests: `tests/verify/test_plans.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from loopless.refusals import did_you_mean
from loopless.verify import layouts, libraries
from loopless.verify.contracts.contract import Contract

_RECORDS = ("batch", "data", "rollout", "rollouts", "traj", "trajectory", "sample", "samples")
_RECORDS += ("buffer", "transition", "transitions", "inputs", "args", "kwargs", "td", "tensordict")
_AFFIXES = ("batch_", "mb_", "b_", "_batch", "_buf", "_arr", "_tensor", "_array", "_b", "_seq")
MOST = 400


class UsageError(ValueError):
    """What the caller has to say differently."""


class Record(dict):
    """One argument that holds all: by key, or by attribute."""

    def __getattribute__(self, name: str) -> Any:
        if dict.__contains__(self, name):  # before dict's own: `values` is one of them
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@dataclass(frozen=True)
class Plan:
    """One way to call a function and to read its answers."""

    mapping: Mapping[str, str]  # its parameters → our forms
    library: str = "numpy"
    layout: layouts.Layout = layouts.TIME
    dtype: str = "float64"
    float_flags: bool = False
    keep: bool = False  # the last row keeps its axis
    record: str = ""  # the argument that holds others
    keys: tuple[str, ...] = ()  # what it holds
    positional: tuple[str, ...] = ()
    variant: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, int] = field(default_factory=dict)  # our outputs → their places
    coarse: bool = False  # exact to float32 only
    left: tuple[str, ...] = ()  # parameters left at their defaults

    def settings(self, contract: Contract) -> dict[str, Any]:
        """What a case must say for the twin to be asked the same question."""
        return contract.settings(set(self.mapping.values())) | dict(self.variant)


@dataclass
class Request:
    """What the user said about how to call the function."""

    library: str | None = None
    layout: str | None = None
    maps: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)  # numbers built into the function


@dataclass
class Options:
    """How to call the function, and how long to look at it."""

    request: Request = field(default_factory=Request)
    cases: int = 1000
    seconds: float = 30.0
    call_s: float = 10.0
    truncation: bool = True  # whether rollouts may be cut off by a time limit
    strict: bool = False  # what is fragile counts as wrong
    timing: bool = True
    smallest: bool = True  # whether to look for the smallest case that fails


def plans(function: Callable, contract: Contract, request: Request) -> Iterator[Plan]:
    """All ways to call `function` that its signature allows, the likeliest first."""
    choices, positional, (record, keys), left = _parameters(function, contract, request)
    mappings = [
        {name: form for name, form in zip(choices, chosen, strict=True) if form}
        for chosen in product(*choices.values())
        if len(set(filter(None, chosen))) == len(list(filter(None, chosen)))
    ]
    mappings = [_lagged(mapping) for mapping in mappings]
    _check_needs(function, contract, mappings, request)
    wanted = layouts.OF_ROWS if contract.rows else layouts.OF_TIME
    if request.layout:
        if request.layout not in [layout.name for layout in wanted]:
            names = ", ".join(layout.name for layout in wanted)
            raise UsageError(f"--layout {request.layout} is none of {contract.name}'s: {names}.")
        wanted = (layouts.LAYOUTS[request.layout],)
    names = (request.library,) if request.library else libraries.evidence(function)
    kinds = {form.name: form.kind for form in contract.forms}

    def every() -> Iterator[Plan]:
        for library, dtype, layout, mapping in product(
            names, ("float64", "float32"), wanted, mappings
        ):
            found = {kinds[name] for name in mapping.values()}
            flags = (False, True) if found & {"flags", "vector_flags", "last_flag"} else (False,)
            keeps = (False, True) if found & set(layouts.ENDS) else (False,)
            if layout.lists and (library != "numpy" or dtype == "float32"):
                continue
            for float_flags, keep in product(flags, keeps):
                yield Plan(
                    mapping, library, layout, dtype, float_flags, keep, record, keys, positional,
                    left=left,
                )  # fmt: skip

    return islice(every(), MOST)


def _parameters(function, contract, request):
    """For each parameter the forms it may be, the likeliest first; and how it is handed over."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(
            "it has no signature that can be read. Wrap it in a Python function."
        ) from None
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    code = getattr(libraries.plain(function), "__code__", None)
    if not named and any(p.kind is p.VAR_KEYWORD for p in parameters) and code is not None:
        return _keys(code, contract, request), (), ("", ()), ()
    choices, unknown, left, record, keys = {}, [], [], "", ()
    for p in named:
        found = _forms(p.name, contract, request)
        alone = len([x for x in named if x.default is x.empty]) == 1
        if found:
            # What may be None may be left out: a double network, a SARSA action.
            choices[p.name] = (*found, "") if p.default is None else found
        elif p.default is not p.empty:
            left.append(p.name)
        elif code is not None and not record and (alone or p.name.lower() in _RECORDS):
            held = _keys(code, contract, request)
            record, keys, choices = p.name, tuple(held), held | choices
        else:
            unknown.append(p.name)
    for name in request.maps:
        if name not in [p.name for p in named]:
            hint = did_you_mean(name, [p.name for p in named], repr)
            raise UsageError(f"--map names a parameter {name!r} that it does not have.{hint}")
    if unknown:
        ours = ", ".join(form.name for form in contract.forms)
        raise UsageError(
            f"cannot tell what {_listed(unknown)} of its parameters mean. "
            f"Say so with --map {unknown[0]}=NAME, where NAME is one of: {ours}."
        )
    positional = tuple(p.name for p in named if p.kind is p.POSITIONAL_ONLY)
    return choices, positional, (record, keys), tuple(left)


def _keys(code, contract, request):
    """The keys that a function takes out of its one argument, from the strings in its code."""
    names, strings = libraries.names_in(code)
    choices = {}
    for key in sorted(strings | (names - set(code.co_varnames))):
        found = _forms(key, contract, request) if key.isidentifier() else ()
        if found:
            choices[key] = found
    if not choices:
        raise UsageError(
            "takes one argument, and its code names none of the keys that are known. "
            "Give it parameters of its own, in a wrapper."
        )
    return choices


def _forms(name: str, contract: Contract, request: Request) -> tuple[str, ...]:
    known = [form.name for form in contract.forms]
    if name in request.maps:
        asked = request.maps[name]
        if asked not in known:
            hint = did_you_mean(asked, known, repr, or_list=True)
            raise UsageError(f"--map {name}={asked}: {contract.name} has no {asked!r}.{hint}")
        return (asked,)
    for spelling in spellings(name):
        found = tuple(form.name for form in contract.forms if spelling in form.names)
        if found:
            return found
    return ()


def spellings(name: str) -> tuple[str, ...]:
    """A parameter's name, and what is left of it without what says little."""
    lowered = name.lower().strip("_")
    return tuple(dict.fromkeys((name, name.lower(), lowered, *_stripped(lowered))))


def _stripped(name: str) -> Iterator[str]:
    for affix in _AFFIXES:
        if affix.endswith("_") and name.startswith(affix):
            yield name.removeprefix(affix)
        elif affix.startswith("_") and name.endswith(affix):
            yield name.removesuffix(affix)


def _lagged(mapping: dict[str, str]) -> dict[str, str]:
    """Flags beside a last flag are lagged: row t says that row t begins an episode."""
    forms = set(mapping.values())
    if "starts" in forms and "done" in forms:  # as in Stable-Baselines3
        return {k: "last_done" if form == "done" else form for k, form in mapping.items()}
    if "last_done" in forms and "done" in forms:  # as in CleanRL
        return {k: "starts" if form == "done" else form for k, form in mapping.items()}
    return mapping


def _check_needs(function, contract, mappings, request) -> None:
    missing = [
        group
        for group in contract.needs
        if not any(set(group) & set(mapping.values()) for mapping in mappings)
        and not set(group) & set(request.fixed)
    ]
    if missing:
        first = missing[0]
        words = "; ".join(" or ".join(group) for group in missing)
        how = "--fix" if first[0] in ("gamma", "lambda_", "n", "top_k") else "--map PARAMETER"
        value = "=0.99, say, if it is built in" if how == "--fix" else f"={first[0]}"
        name = f" {first[0]}{value}" if how == "--fix" else value
        raise UsageError(
            f"as {contract.name} it must be given {words}, and none of its parameters looks like "
            f"it. Use {how}{name}."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
