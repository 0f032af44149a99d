"""Our own compiled code inside XLA programs on the CPU, and its switch; README.md says more."""

import os

VARIABLE = "LOOPLESS_NATIVE"
PARTS = ("product", "avatarl")


def is_on(part: str) -> bool:
    """Return whether this part may be used: LOOPLESS_NATIVE is unset or 1, or it names the part.

    LOOPLESS_NATIVE=0 switches every part off, a list such as "avatarl" every part that it does not
    name. It is read when a program is traced: programs that exist already stay as they are.
    """
    setting = os.environ.get(VARIABLE, "1").strip()
    if setting in ("0", "1"):
        return setting == "1"
    names = [name.strip() for name in setting.split(",")]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(
            f"{VARIABLE}={setting}: {unknown[0]!r} is no part of our native code; give 0, 1, or a "
            f"list of {', '.join(PARTS)}, which then stay on."
        )
    return part in names
