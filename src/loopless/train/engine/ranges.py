"""What is wrong with the single numbers of a config, in words: the part that all trainers share.

How settings go together is each config's own `problems`. Imports `runs`. Tests:
`tests/train/test_*_config.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any


def problems(
    config: Any,
    least: Mapping[str, float],
    *,
    shares: Iterable[str] = (),
    above_zero: Iterable[str] = (),
) -> list[str]:
    """All that can be wrong with any config's single settings; arguments as of `outside`."""
    wrong = outside(config, least, shares=shares, above_zero=above_zero)
    wrong += [f"{name} is infinite." for name, value in vars(config).items() if _infinite(value)]
    if any(width < 1 for width in getattr(config, "hidden", ())):
        wrong.append(f"hidden is {config.hidden}; widths are from 1 up.")
    if config.tensorboard:
        from loopless.runs import tensorboard

        wrong += tensorboard.problems()
    return wrong


def outside(
    config: Any,
    least: Mapping[str, float],
    *,
    shares: Iterable[str] = (),
    above_zero: Iterable[str] = (),
) -> list[str]:
    """Numbers out of their ranges; None is in any.

    least: the least that a setting may be. shares: those in [0, 1]. above_zero: what it says.
    """
    wrong = [
        f"{name} is {value}; it is from {low} up."
        for name, low in least.items()
        if (value := getattr(config, name)) is not None and not value >= low
    ]
    wrong += [
        f"{name} is {value}; it lies in [0, 1]."
        for name in shares
        if (value := getattr(config, name)) is not None and not 0 <= value <= 1
    ]
    return wrong + [
        f"{name} is {value}; it is above 0."
        for name in above_zero
        if (value := getattr(config, name)) is not None and not value > 0
    ]


def _infinite(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return any(isinstance(x, float) and abs(x) == float("inf") for x in values)
