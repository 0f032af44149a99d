"""The table of compiled programs that --profile prints."""

import io

import jax
import jax.numpy as jnp
from rich.console import Console

from loopless.runs.progress.programs import Program, ProgramTimes


def unregister(times: ProgramTimes) -> None:
    jax.monitoring.unregister_event_listener(times._note)
    jax.monitoring.unregister_event_duration_listener(times._measure)


def test_a_compilation_has_its_name_its_parts_and_whether_it_was_loaded():
    times = ProgramTimes()
    try:

        def inner(x):
            return jnp.cos(x)

        def surely_mine(x):
            return jax.jit(inner)(x) * 2

        jax.jit(surely_mine)(1.0)
    finally:
        unregister(times)
    (program,) = [each for each in times.programs if "surely_mine" in each.name]
    assert min(program.trace_s, program.lower_s, program.compile_s) > 0
    assert not any("inner" in each.name for each in times.programs)


def test_a_hit_belongs_to_the_next_compilation_alone():
    times = ProgramTimes()
    unregister(times)
    for name in ("a", "b"):
        times._measure("/x/jaxpr_trace_duration", 0.5, fun_name=name)
        times._measure("/x/jaxpr_to_mlir_module_duration", 0.25, fun_name=f"jit({name})")
        if name == "a":
            times._note("/jax/compilation_cache/cache_hits")
        times._measure("/x/backend_compile_duration", 1.0, fun_name=f"jit({name})")
    assert times.programs == [
        Program("jit(a)", 0.5, 0.25, 1.0, loaded=True),
        Program("jit(b)", 0.5, 0.25, 1.0),
    ]
    times.programs += [Program("tiny", 0.001), Program("tinier", 0.001, loaded=True)]
    text = io.StringIO()
    Console(file=text, width=100).print(times.table())
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert lines[0] == ["program", "trace", "lower", "compile", "load"]
    assert lines[1] == ["jit(a)", "0.50", "s", "0.25", "s", "–", "1.00", "s", "hit"]
    assert lines[2] == ["jit(b)", "0.50", "s", "0.25", "s", "1.00", "s", "–", "miss"]
    assert lines[3][:3] == ["2", "small", "ones"]
    assert lines[3][-2:] == ["1", "hits"]
