"""What each row of a rollout holds: the caller's fields, and those that the buffer adds to them.

Imports `fields` and `refusals`. Tests: `tests/replay/test_rollout_refusals.py`.
"""

from loopless.refusals import refuse
from loopless.replay.fields import Field, parse_field, parse_fields

STEP = ("rewards", "values", "terminated", "truncated")  # what every step brings beside the fields
ESTIMATES = ("advantages", "returns")
SAME_STEP = ("final_values", "bootstrapped")  # a successor's value, and whether it is known
RESERVED = {*STEP, *ESTIMATES, *SAME_STEP, "valid", "env", "envs"}
FLOATS = ("bfloat16", "float16", "float32", "float64")


def rollout_fields(
    where: str, declared, float_dtype, store, same_step: bool
) -> tuple[dict[str, Field], dict[str, Field]]:
    """The caller's fields and the buffer's own; one error for all wrong with the declaration."""
    given, problems = parse_fields(where, declared, store, RESERVED)
    try:
        number = parse_field(((), float_dtype), store).dtype
    except TypeError:
        number = ""
    if number not in FLOATS:
        problems.append(f"float_dtype is {float_dtype!r}, no floating dtype of {store.name}")
    refuse(where, problems)
    own = dict.fromkeys((*STEP, *ESTIMATES, *SAME_STEP), Field((), number, "number"))
    own |= dict.fromkeys(("terminated", "truncated", "bootstrapped"), Field((), "bool", "flag"))
    unused = () if same_step else SAME_STEP
    return given, {name: field for name, field in own.items() if name not in unused}
