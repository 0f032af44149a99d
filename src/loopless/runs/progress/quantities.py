"""Format numbers for people: 210k, 1.25M, 3:05, 41.5 µs, 812 MB.

The progress display, the profile, the plots and the page share these functions, so that a number
looks the same everywhere.
"""

from __future__ import annotations

import math


def count(number: float) -> str:
    """Format a count in at most five characters, up to billions: 950, 18.4k, 210k, 1.25M."""
    size = abs(number)
    if not math.isfinite(number):
        return "–"
    if size < 999.5:
        return f"{number:.0f}" if size >= 9.95 or number == round(number) else f"{number:.1f}"
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if size < 999.5 * scale or unit == "T":
            break
    return f"{significant(number / scale)}{unit}"


def significant(number: float) -> str:
    """Format three significant digits without an exponent and without trailing zeros."""
    size = abs(number)
    text = f"{number:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def number(value: float) -> str:
    """Format a measured value: 487.3, 0.0123, 3.2e-05; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.1e}"
    if size >= 9999.5:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 99.95 else f"{value:.2f}" if size >= 1 else f"{value:.4f}"


def duration(seconds: float) -> str:
    """Format a short time with its unit: 41.5 µs, 3.10 ms, 12.0 s."""
    unit, scale = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3) if seconds >= 1e-3 else ("µs", 1e-6)
    value = seconds / scale
    digits = 0 if value >= 99.5 else 1 if value >= 9.95 else 2
    return f"{value:.{digits}f} {unit}"


def clock_time(seconds: float) -> str:
    """Format a long time as on a clock: 0:07, 12:30, 3:02:01, 2 d 04:00; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    minutes, second = divmod(round(max(seconds, 0.0)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour:02}:{minute:02}"
    return f"{hour}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def size(number_of_bytes: float) -> str:
    """Format an amount of memory: 812 MB, 1.25 GB."""
    if number_of_bytes < 1e9:
        return f"{number_of_bytes / 1e6:.0f} MB"
    return f"{significant(number_of_bytes / 1e9)} GB"
