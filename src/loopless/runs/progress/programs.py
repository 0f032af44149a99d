"""Measure what a run compiles: each JAX program's tracing, lowering, and compiling or loading.

JAX reports these durations to whoever listens. It names the program with each, but not with the
report that a program was found in the cache; that one comes in the same thread, just before.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

SMALL_S = 0.05  # programs that took less in all are shown as one row


@dataclass
class Program:
    """One compiled program, and the seconds that it took to get it."""

    name: str
    trace_s: float = 0.0
    lower_s: float = 0.0
    compile_s: float = 0.0
    loaded: bool = False

    @property
    def total_s(self) -> float:
        """Return all seconds."""
        return self.trace_s + self.lower_s + self.compile_s


class ProgramTimes:
    """Listens to JAX from its construction on; `programs` has one entry for each compilation."""

    def __init__(self) -> None:
        import jax

        self.programs: list[Program] = []
        self._here = threading.local()
        jax.monitoring.register_event_listener(self._note)
        jax.monitoring.register_event_duration_secs_listener(self._measure)

    def _note(self, event: str, **_: Any) -> None:
        if event.endswith("/cache_hits"):
            self._here.loaded = True

    def _measure(self, event: str, duration_secs: float, **details: Any) -> None:
        seconds, fun_name = duration_secs, details.get("fun_name", "")
        here = vars(self._here)
        if event.endswith("/jaxpr_trace_duration"):
            # A function is traced after those that it calls: the last one is the program's own.
            here["trace"] = fun_name, seconds
        elif event.endswith("/jaxpr_to_mlir_module_duration"):
            name, trace_s = here.pop("trace", ("", 0.0))
            traced = fun_name in (name, f"jit({name})")
            here["program"] = Program(fun_name, trace_s if traced else 0.0, seconds)
        elif event.endswith("/backend_compile_duration"):
            program = here.pop("program", None) or Program(fun_name)
            program.compile_s, program.loaded = seconds, here.pop("loaded", False)
            self.programs.append(program)

    def table(self) -> Table:
        """Return a table of the programs, the costliest first, and the small ones in one row."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("program", no_wrap=True)
        for name in ("trace", "lower", "compile", "load", ""):
            table.add_column(name, justify="right", no_wrap=True)
        large = [program for program in self.programs if program.total_s >= SMALL_S]
        for program in sorted(large, key=lambda program: -program.total_s):
            seconds = f"{program.compile_s:.2f} s"
            table.add_row(
                program.name, f"{program.trace_s:.2f} s", f"{program.lower_s:.2f} s",
                *(("–", seconds, "hit") if program.loaded else (seconds, "–", "miss")),
            )  # fmt: skip
        small = [program for program in self.programs if program.total_s < SMALL_S]
        if small:
            hits = sum(program.loaded for program in small)
            sums = [sum(getattr(p, part) for p in small) for part in ("trace_s", "lower_s")]
            compiled = sum(program.compile_s for program in small if not program.loaded)
            loaded = sum(program.compile_s for program in small if program.loaded)
            table.add_row(
                f"{len(small)} small ones", *(f"{s:.2f} s" for s in (*sums, compiled, loaded)),
                f"{hits} hits",
            )  # fmt: skip
        return table


@cache
def program_times() -> ProgramTimes:
    """Return the one listener of this process, which listens from the first call on."""
    return ProgramTimes()
