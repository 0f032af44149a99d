"""Call a stranger's function: it may raise, print, never come back, or change what it was given.

`Caller` puts a case into the form that a `Plan` says, calls, watches, and reads the answers back
as NumPy arrays by our names. Imports `layouts`, `libraries`, `plans`. Tests:
`tests/verify/test_hostile_functions.py`.
"""

from __future__ import annotations

import contextlib
import io
import signal
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np

from loopless.verify import layouts, libraries
from loopless.verify.contracts.contract import Contract
from loopless.verify.plans import Plan, Record

CALL_S = 10.0
Outputs = list[tuple[str | None, np.ndarray]]


class TimeUp(BaseException):
    """A call that took too long. Not an Exception: functions may swallow those."""


class Refused(Exception):
    """An answer that cannot be compared, and why."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` inside of what runs longer; where signals work, that is in the main thread.

    A process that was stopped for a while has used no time of its own: it gets the time again.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not (
        threading.main_thread()
    ):
        yield
        return

    start, again = process_time(), [True]

    def stop(number, frame):
        if again and again.pop() and process_time() - start < 0.5 * seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def muted() -> Iterator[io.StringIO]:
    """No output, no warnings: what a stranger's code says while it works."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield out


@dataclass
class Watch:
    """What was seen of a function besides its answers."""

    changed: set[str] = field(default_factory=set)
    printed: bool = False
    dtypes: set[str] = field(default_factory=set)


class Caller:
    """A function, called as a plan says."""

    def __init__(
        self, function: Callable, contract: Contract, plan: Plan, call_s: float = CALL_S
    ) -> None:
        self.function, self.contract, self.plan = function, contract, plan
        self.call_s, self.watch = call_s, Watch()
        # Operation by operation JAX is slow, and what holds a scan compiles anew in every call.
        self._jits = plan.library == "jax" and not (plan.record or plan.positional)
        self._forms = {form.name: form for form in contract.forms}

    def __call__(self, case: Mapping, answer: Mapping) -> dict[str, np.ndarray]:
        """What it makes of `case`, by our names and of the shapes that the right answer has.

        Raises what the function raises, `Refused` or `TimeUp`.
        """
        return self.read(self.raw(case), self.plan.reading, answer)

    def raw(self, case: Mapping) -> list[Outputs]:
        """All that the function gives back: once, or once for each column or sample."""
        given = self.given(case)
        if not self.plan.layout.split:
            return [self._raw(given)]
        kind, x = next((k, x) for k, x in given.values() if k not in ("number", "integer"))
        return [
            self._raw({k: (kind, layouts.parts(kind, x, i)) for k, (kind, x) in given.items()})
            for i in range(np.shape(x)[1 if kind in layouts.OVER_TIME else 0])
        ]

    def read(self, raws: list[Outputs], reading: Mapping, answer: Mapping) -> dict[str, np.ndarray]:
        """The outputs that `reading` names, in our layout and of the shapes they should have."""
        found = {}
        for name, place in reading.items():
            kind = self.contract.outputs[name]
            pieces = [self._piece(outputs, name, place) for outputs in raws]
            if self.plan.layout.split:
                x = layouts.joined(kind, pieces)
            else:
                x = self.plan.layout.get(kind, pieces[0])
            shape = np.shape(answer[name])
            if x.shape != shape:
                if x.size != 1 or shape != ():
                    raise Refused(f"gives back shape {x.shape} for {name}, not {shape}")
                x = x.reshape(())
            found[name] = x
        return found

    def _piece(self, outputs: Outputs, name: str, place: int) -> np.ndarray:
        if place >= len(outputs):
            raise Refused(f"gives back {len(outputs)} things; {name} should be number {place + 1}")
        x = outputs[place][1]
        if x.dtype.kind not in "fiub":
            raise Refused(f"gives back something of dtype {x.dtype} for {name}")
        self.watch.dtypes.add(str(x.dtype))
        return x.astype(np.float64)

    def given(self, case: Mapping) -> dict[str, tuple[str, Any]]:
        """For each parameter what kind of thing it gets, and the thing, as [T, B] arrays."""
        return {
            parameter: (self._forms[name].kind, self._forms[name].make(case))
            for parameter, name in self.plan.mapping.items()
        }

    def arguments(self, given: Mapping, gradient: tuple[str, ...] = ()) -> dict[str, Any]:
        plan, found = self.plan, {}
        for parameter, (kind, x) in given.items():
            if isinstance(x, np.ndarray):
                if x.dtype.kind == "b" and plan.float_flags:
                    x = x.astype(np.float64)
                x = plan.layout.put(kind, x, plan.keep)
            elif isinstance(x, np.generic):
                x = x.item()
            if not plan.layout.lists:
                x = libraries.array(plan.library, x, plan.dtype, parameter in gradient)
            found[parameter] = x
        return found

    def _compiled(self, arguments: dict[str, Any]) -> Any:
        """The call as one program, if it can be traced; if not, from now on as it stands."""
        if self._jits:
            import jax

            try:
                return jax.jit(self.function)(**arguments)
            except Exception:  # control flow on values, lists, shapes from arguments
                self._jits = False
        return self.invoke(arguments)

    def invoke(self, arguments: dict[str, Any]) -> Any:
        """The bare call, for those who time it."""
        if self.plan.record:
            held = {k: x for k, x in arguments.items() if k in self.plan.keys}
            rest = {k: x for k, x in arguments.items() if k not in held}
            return self.function(**{self.plan.record: Record(held)}, **rest)
        positional = [arguments[name] for name in self.plan.positional]
        named = {k: x for k, x in arguments.items() if k not in self.plan.positional}
        return self.function(*positional, **named)

    def gradients(self, case: Mapping, by: Collection[str]) -> dict[str, np.ndarray]:
        """Derivatives of the first output by our arguments `by`, by the function's own library."""
        given = self.given(case)
        wanted = {p: n for p, n in self.plan.mapping.items() if n in by}
        with self.quiet():
            if self.plan.library == "torch":
                found = self._torch_gradients(given, tuple(wanted))
            else:
                found = self._jax_gradients(given, tuple(wanted))
        back = {f"by_{wanted[p]}": libraries.to_numpy(x) for p, x in found.items()}
        return {
            name: x.reshape(np.shape(case[name.removeprefix("by_")])) for name, x in back.items()
        }

    def _loss(self, result: Any) -> Any:
        return libraries.outputs(result)[self.plan.reading["loss"]][1]

    def _torch_gradients(self, given, parameters):
        import torch

        arguments = self.arguments(given, parameters)
        loss = self._loss(self.invoke(arguments))
        inputs = [arguments[p] for p in parameters]
        found = torch.autograd.grad(loss.sum(), inputs, allow_unused=True, materialize_grads=True)
        return dict(zip(parameters, found, strict=True))

    def _jax_gradients(self, given, parameters):
        import jax

        arguments = self.arguments(given)

        def loss(moving):
            return self._loss(self.invoke(arguments | moving)).sum()

        return jax.grad(loss)({p: arguments[p] for p in parameters})

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        with limited(self.call_s), muted() as out:
            yield
        self.watch.printed |= bool(out.getvalue())

    def _raw(self, given: Mapping) -> Outputs:
        arguments = self.arguments(given)
        before = {k: np.array(libraries.to_numpy(x)) for k, x in arguments.items() if _mutable(x)}
        with self.quiet():
            result = self._compiled(arguments)
            if result is None:
                raise Refused("gives back nothing")
            found = []
            for name, x in libraries.outputs(result):
                with contextlib.suppress(TypeError, ValueError):
                    found.append((name, libraries.to_numpy(x)))
                    continue
                found.append((name, np.array(None)))
        for name, x in before.items():
            after = libraries.to_numpy(arguments[name])
            if after.shape != x.shape or not np.array_equal(
                after, x, equal_nan=x.dtype.kind == "f"
            ):
                self.watch.changed.add(name)
        return found


def _mutable(x: Any) -> bool:
    return isinstance(x, list | np.ndarray) or hasattr(x, "detach")
