"""Ctrl-C that is not lost: Python may raise it inside a callback of a peer, which swallows it."""

from __future__ import annotations

import signal
from types import FrameType

_requested = False


def install() -> None:
    """Remember Ctrl-C beside raising it. In the main thread only, like all signal handling."""
    global _requested
    _requested = False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _remember)


def check() -> None:
    """Raise a Ctrl-C that came and went unnoticed."""
    if _requested:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    global _requested
    _requested = True
    raise KeyboardInterrupt
