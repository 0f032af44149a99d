"""Settings as arguments of a compiled program, so that other values of them are the same program.

A config names in `TRACED` the settings that change no shape and no branch of what is compiled. Each
program takes their values, and inside it they stand in the config in place of the numbers. Another
learning rate or number of steps then compiles nothing; agents with settings of their own can share
one program. A setting that is None is not passed: a program with it and one without it differ.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import jax
import jax.numpy as jnp

Settings = dict[str, jax.Array]


def traced_settings(config: Any) -> Settings:
    """Return the values of the config's `TRACED` settings, for the programs made from it.

    They have JAX's weak types: in a program they take part in arithmetic as a number written in its
    code would, whatever the dtype of the arrays beside them is.
    """
    kinds = {field.name: float if _is_float(field.type) else int for field in fields(config)}
    values = {name: getattr(config, name) for name in config.TRACED}
    return {name: jnp.asarray(kinds[name](x)) for name, x in values.items() if x is not None}


def _is_float(annotation: Any) -> bool:
    return float in (annotation, *get_args(annotation))


def as_program(owner: Any, method: str, **options: Any) -> Callable:
    """Return a method of `owner` as a function of (its first argument, settings, the others)."""

    def program(first: Any, settings: Settings, *others: Any) -> Any:
        return getattr(with_settings(owner, settings), method)(first, *others, **options)

    return program


def with_settings(owner: Any, settings: Settings) -> Any:
    """Return `owner`, a dataclass, with these settings in its config and in those of its parts."""
    changes = {}
    for field in fields(owner):
        part = getattr(owner, field.name)
        if hasattr(part, "TRACED"):
            changes[field.name] = replace(part, **settings)
        elif is_dataclass(part) and hasattr(part, "config"):
            changes[field.name] = with_settings(part, settings)
    return replace(owner, **changes)
