"""How `fuse` says what it refuses: one sentence that names the thing and the user's line."""

import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

import torch

_LIBRARIES = tuple(
    str(path)
    for path in (
        Path(torch.__file__).parent,
        Path(__file__).parent,
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["purelib"],
        "<",
    )
)


class FuseError(ValueError):
    """Something that `fuse` cannot compile; nothing of the caller's has moved."""


def line_of(error: BaseException) -> str:
    """Return the innermost line of the user's own code that an error passed through."""
    return _innermost(error.__traceback__)


def _innermost(trace: TracebackType | None) -> str:
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_LIBRARIES)]
    if not frames:
        return ""
    frame = frames[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"


def user_line() -> str:
    """Return the innermost line of this call that is neither PyTorch's nor Python's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        standard = file.startswith(_STANDARD) and not file.startswith(_PACKAGES)
        if not standard and not file.startswith(_INNER):
            return f"{Path(file).name}:{frame.f_lineno}, in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


_INNER = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<eval_with_key>")
_STANDARD, _PACKAGES = (sysconfig.get_paths()[name] for name in ("stdlib", "purelib"))


def first_line(function: Callable) -> str:
    """Return the line on which a function begins, as "file.py:12, in loss"."""
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return name_of(function)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}, in {code.co_name}"


def name_of(thing: object) -> str:
    """Return how a function or an object is called in a message."""
    return getattr(thing, "__qualname__", None) or type(thing).__name__
