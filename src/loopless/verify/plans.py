"""List the ways to call a function: what each parameter means, the library, layout and dtype.

Names decide what a parameter means (`verify.forms`). Where names leave a choice (a `next_value` may
be one row or all of them, time may be the first axis or the last), there are several plans, which
`verify.search` tries in turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from loopless.refusals import did_you_mean
from loopless.verify import Options, UsageError, arrays
from loopless.verify.contracts.contract import Contract

# A parameter of one of these names may hold all the inputs, by key or by attribute.
_RECORDS = ("batch", "data", "rollout", "rollouts", "traj", "trajectory", "sample", "samples")
_RECORDS += ("buffer", "transition", "transitions", "inputs", "args", "kwargs", "td", "tensordict")
_AFFIXES = ("batch_", "mb_", "b_", "_batch", "_buf", "_arr", "_tensor", "_array", "_b", "_seq")
MOST_PLANS = 400


class Record(dict):
    """One argument that holds others, by key or by attribute."""

    def __getattribute__(self, name: str) -> Any:
        if dict.__contains__(self, name):  # keys win over dict's attributes, such as `values`
            return dict.__getitem__(self, name)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@dataclass(frozen=True)
class Plan:
    """One way to call a function and to read its answers."""

    mapping: Mapping[str, str]  # its parameters → our forms
    library: str = "numpy"
    layout: arrays.Layout = arrays.TIME
    dtype: str = "float64"
    float_flags: bool = False
    keep: bool = False  # whether the last row keeps its time axis
    record: str = ""  # the argument that holds others
    keys: tuple[str, ...] = ()  # what `record` holds
    positional: tuple[str, ...] = ()
    variant: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, int] = field(default_factory=dict)  # our outputs → their places
    coarse: bool = False  # whether its answers are exact to float32 only
    left: tuple[str, ...] = ()  # parameters left at their defaults

    def settings(self, contract: Contract) -> dict[str, Any]:
        """Return what a case must contain for the twin to answer the same question."""
        return contract.settings(set(self.mapping.values())) | dict(self.variant)


def plans(function: Callable, contract: Contract, options: Options) -> Iterator[Plan]:
    """Return all ways to call `function` that its signature allows, the likeliest first."""
    choices, positional, (record, keys), left = _parameters(function, contract, options)
    mappings = []
    for forms in product(*choices.values()):
        mapping = {name: form for name, form in zip(choices, forms, strict=True) if form}
        if len(set(mapping.values())) == len(mapping):
            mappings.append(_with_lagged_flags(mapping))
    _check_needs(contract, mappings, options)
    layouts = _layouts(contract, options)
    libraries = (options.library,) if options.library else arrays.library_names(function)
    kinds = {form.name: form.kind for form in contract.forms}

    def every() -> Iterator[Plan]:
        for library, dtype, layout, mapping in product(
            libraries, ("float64", "float32"), layouts, mappings
        ):
            used = {kinds[name] for name in mapping.values()}
            flags = (False, True) if used & {"flags", "vector_flags", "last_flag"} else (False,)
            keeps = (False, True) if used & set(arrays.ENDS) else (False,)
            if layout.lists and (library != "numpy" or dtype == "float32"):
                continue
            for float_flags, keep in product(flags, keeps):
                yield Plan(
                    mapping, library, layout, dtype, float_flags, keep, record, keys, positional,
                    left=left,
                )  # fmt: skip

    return islice(every(), MOST_PLANS)


def _layouts(contract: Contract, options: Options) -> tuple[arrays.Layout, ...]:
    layouts = arrays.OF_ROWS if contract.rows else arrays.OF_TIME
    if not options.layout:
        return layouts
    names = [layout.name for layout in layouts]
    if options.layout not in names:
        raise UsageError(
            f"--layout {options.layout} is none of {contract.name}'s: {', '.join(names)}."
        )
    return (arrays.LAYOUTS[options.layout],)


def signature_of(function: Callable) -> list[inspect.Parameter]:
    """Return the parameters of a function; raise UsageError if Python cannot tell them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(
            "it has no signature that can be read. Wrap it in a Python function."
        ) from None


def refuse_unknown(parameters: list[str], names: list[str]) -> None:
    """Raise UsageError if there are any `parameters`, whose meaning is unknown."""
    if parameters:
        raise UsageError(
            f"cannot tell what {', '.join(map(repr, parameters))} of its parameters mean. "
            f"Say so with --map {parameters[0]}=NAME, where NAME is one of: {', '.join(names)}."
        )


def _parameters(function, contract, options):
    """Return which forms each parameter may be, likeliest first, and how parameters are passed."""
    parameters = signature_of(function)
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    code = getattr(arrays.python_function(function), "__code__", None)
    if not named and any(p.kind is p.VAR_KEYWORD for p in parameters) and code is not None:
        return _keys(code, contract, options), (), ("", ()), ()
    is_alone = len([p for p in named if p.default is p.empty]) == 1
    choices, unknown, left, record, keys = {}, [], [], "", ()
    for p in named:
        forms = _forms(p.name, contract, options)
        if forms:
            # A default of None can be left out: a second network, a SARSA action.
            choices[p.name] = (*forms, "") if p.default is None else forms
        elif p.default is not p.empty:
            left.append(p.name)
        elif code is not None and not record and (is_alone or p.name.lower() in _RECORDS):
            inside = _keys(code, contract, options)
            record, keys, choices = p.name, tuple(inside), inside | choices
        else:
            unknown.append(p.name)
    names = [p.name for p in named]
    for name in options.maps:
        if name not in names:
            hint = did_you_mean(name, names, repr)
            raise UsageError(f"--map names a parameter {name!r} that it does not have.{hint}")
    refuse_unknown(unknown, [form.name for form in contract.forms])
    positional = tuple(p.name for p in named if p.kind is p.POSITIONAL_ONLY)
    return choices, positional, (record, keys), tuple(left)


def _keys(code, contract, options):
    """Return the keys that a function reads from its one argument, with the forms each may be.

    They are found among the strings and names in its code.
    """
    names, strings = arrays.names_in(code)
    choices = {}
    for key in sorted(strings | (names - set(code.co_varnames))):
        forms = _forms(key, contract, options) if key.isidentifier() else ()
        if forms:
            choices[key] = forms
    if not choices:
        raise UsageError(
            "takes one argument, and its code names none of the keys that are known. "
            "Give it parameters of its own, in a wrapper."
        )
    return choices


def _forms(name: str, contract: Contract, options: Options) -> tuple[str, ...]:
    if name in options.maps:
        form, known = options.maps[name], [form.name for form in contract.forms]
        if form not in known:
            hint = did_you_mean(form, known, repr, or_list=True)
            raise UsageError(f"--map {name}={form}: {contract.name} has no {form!r}.{hint}")
        return (form,)
    for spelling in spellings(name):
        forms = tuple(form.name for form in contract.forms if spelling in form.names)
        if forms:
            return forms
    return ()


def spellings(name: str) -> tuple[str, ...]:
    """Return a parameter's name, in lower case and without prefixes or suffixes that say little."""
    lowered = name.lower().strip("_")
    return tuple(dict.fromkeys((name, name.lower(), lowered, *_without_affixes(lowered))))


def _without_affixes(name: str) -> Iterator[str]:
    for affix in _AFFIXES:
        if affix.endswith("_") and name.startswith(affix):
            yield name.removeprefix(affix)
        elif affix.startswith("_") and name.endswith(affix):
            yield name.removesuffix(affix)


def _with_lagged_flags(mapping: dict[str, str]) -> dict[str, str]:
    """Read flags beside a last flag as lagged: flag t says that step t begins an episode."""
    forms = set(mapping.values())
    if "starts" in forms and "done" in forms:  # as in Stable-Baselines3
        return {k: "last_done" if form == "done" else form for k, form in mapping.items()}
    if "last_done" in forms and "done" in forms:  # as in CleanRL
        return {k: "starts" if form == "done" else form for k, form in mapping.items()}
    return mapping


def _check_needs(contract: Contract, mappings: list[dict[str, str]], options: Options) -> None:
    missing = [
        group
        for group in contract.needs
        if not any(set(group) & set(mapping.values()) for mapping in mappings)
        and not set(group) & set(options.fixed)
    ]
    if missing:
        groups, name = "; ".join(" or ".join(group) for group in missing), missing[0][0]
        if name in ("gamma", "lambda_", "n", "top_k"):
            value = 0.99 if name in ("gamma", "lambda_") else 5
            advice = f"--fix {name}={value}, say, if it is built in"
        else:
            advice = f"--map PARAMETER={name}"
        raise UsageError(
            f"as {contract.name} it must be given {groups}, and none of its parameters looks like "
            f"it. Use {advice}."
        )
