"""Call a user's function safely: it may raise, print, never return, or change its arguments.

`Caller` makes the arguments from a case as a `Plan` says, calls the function, watches it, and
returns its answers as NumPy arrays under our names.
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

from loopless.verify import arrays
from loopless.verify.contracts.contract import Contract, Tolerances, same
from loopless.verify.plans import Plan, Record

CALL_S = 10.0
Outputs = list[tuple[str | None, np.ndarray]]


class TimeUp(BaseException):
    """A call took too long. It is no Exception, because the function might catch that."""


class Refused(Exception):
    """An answer cannot be compared; the message says why."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in a block that runs longer than `seconds`.

    This needs signals, and so does nothing outside the main thread. A process that was suspended
    has used hardly any processor time; it gets `seconds` once more.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not in_main_thread:
        yield
        return

    start, retries = process_time(), [True]

    def stop(number, frame):
        if retries and retries.pop() and process_time() - start < 0.5 * seconds:
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
    """Hide output and warnings of a user's code; yield the buffer with what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield out


def fits(mistake: Callable, case: Mapping, answers: Mapping, tolerances: Tolerances) -> bool:
    """Return whether a known mistake gives these answers to a case, where it gives any."""
    try:
        with muted():
            mistaken = mistake(case)
    except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError):
        return False
    compared = {name: x for name, x in answers.items() if name in mistaken}
    return bool(compared) and same(compared, mistaken, tolerances)


@dataclass
class Watch:
    """What a function did besides answering."""

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
        # Without jit, JAX runs operation by operation and compiles each scan again in every call.
        self._jits = plan.library == "jax" and not (plan.record or plan.positional)
        self._forms = {form.name: form for form in contract.forms}

    def __call__(self, case: Mapping, right_answers: Mapping) -> dict[str, np.ndarray]:
        """Return the function's answers by our names, in the shapes of the right answers.

        Raises what the function raises, `Refused` or `TimeUp`.
        """
        return self.read(self.raw(case), self.plan.reading, right_answers)

    def raw(self, case: Mapping) -> list[Outputs]:
        """Return the outputs of each call: of one, or of one for each column or sample."""
        return [self._raw(part) for part in self.parts(case)]

    def read(
        self, raws: list[Outputs], reading: Mapping, right_answers: Mapping
    ) -> dict[str, np.ndarray]:
        """Return the outputs that `reading` names, in our layout; Refused if a shape is wrong."""
        answers = {}
        for name, place in reading.items():
            kind = self.contract.outputs[name]
            pieces = [self._piece(outputs, name, place) for outputs in raws]
            if self.plan.layout.split:
                x = arrays.join(kind, pieces)
            else:
                x = self.plan.layout.get(kind, pieces[0])
            shape = np.shape(right_answers[name])
            if x.shape != shape:
                if x.size != 1 or shape != ():
                    raise Refused(f"returns shape {x.shape} for {name}, not {shape}")
                x = x.reshape(())
            answers[name] = x
        return answers

    def _piece(self, outputs: Outputs, name: str, place: int) -> np.ndarray:
        if place >= len(outputs):
            raise Refused(
                f"returns {len(outputs)} outputs, but {name} should be number {place + 1}"
            )
        x = outputs[place][1]
        if x.dtype.kind not in "fiub":
            raise Refused(f"returns something of dtype {x.dtype} for {name}")
        self.watch.dtypes.add(str(x.dtype))
        return x.astype(np.float64)

    def parts(self, case: Mapping) -> list[dict[str, tuple[str, Any]]]:
        """Return the inputs of each call: (kind, array) by parameter, before the layout."""
        whole = self._inputs(case)
        return arrays.split(whole) if self.plan.layout.split else [whole]

    def _inputs(self, case: Mapping) -> dict[str, tuple[str, Any]]:
        return {
            parameter: (self._forms[name].kind, self._forms[name].make(case))
            for parameter, name in self.plan.mapping.items()
        }

    def arguments(self, inputs: Mapping, gradient: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the arguments in the plan's layout, dtype and library."""
        plan, arguments = self.plan, {}
        for parameter, (kind, x) in inputs.items():
            if isinstance(x, np.ndarray):
                if x.dtype.kind == "b" and plan.float_flags:
                    x = x.astype(np.float64)
                x = plan.layout.put(kind, x, plan.keep)
            elif isinstance(x, np.generic):
                x = x.item()
            if not plan.layout.lists:
                x = arrays.to_library(plan.library, x, plan.dtype, parameter in gradient)
            arguments[parameter] = x
        return arguments

    def _invoke_compiled(self, arguments: dict[str, Any]) -> Any:
        """Call the function under `jax.jit`; once tracing has failed, call it as it is."""
        if self._jits:
            import jax

            try:
                return jax.jit(self.function)(**arguments)
            except Exception:  # control flow on values, lists, shapes from arguments
                self._jits = False
        return self.invoke(arguments)

    def invoke(self, arguments: dict[str, Any]) -> Any:
        """Call the function and do nothing else, so that it can be timed."""
        if self.plan.record:
            inside = {k: x for k, x in arguments.items() if k in self.plan.keys}
            rest = {k: x for k, x in arguments.items() if k not in inside}
            return self.function(**{self.plan.record: Record(inside)}, **rest)
        positional = [arguments[name] for name in self.plan.positional]
        named = {k: x for k, x in arguments.items() if k not in self.plan.positional}
        return self.function(*positional, **named)

    def gradients(self, case: Mapping, by: Collection[str]) -> dict[str, np.ndarray]:
        """Return the loss's gradients by our arguments `by`, computed by the function's library."""
        inputs = self._inputs(case)
        wanted = {p: n for p, n in self.plan.mapping.items() if n in by}
        with self.quiet():
            if self.plan.library == "torch":
                slopes = self._torch_gradients(inputs, tuple(wanted))
            else:
                slopes = self._jax_gradients(inputs, tuple(wanted))
        return {
            f"by_{wanted[p]}": arrays.to_numpy(x).reshape(np.shape(case[wanted[p]]))
            for p, x in slopes.items()
        }

    def _loss(self, result: Any) -> Any:
        return arrays.outputs(result)[self.plan.reading["loss"]][1]

    def _torch_gradients(self, inputs, parameters):
        import torch

        arguments = self.arguments(inputs, parameters)
        loss = self._loss(self.invoke(arguments))
        leaves = [arguments[p] for p in parameters]
        slopes = torch.autograd.grad(loss.sum(), leaves, allow_unused=True, materialize_grads=True)
        return dict(zip(parameters, slopes, strict=True))

    def _jax_gradients(self, inputs, parameters):
        import jax

        arguments = self.arguments(inputs)

        def loss(moving):
            return self._loss(self.invoke(arguments | moving)).sum()

        return jax.grad(loss)({p: arguments[p] for p in parameters})

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Limit the time of a block, hide its output, and note that it printed."""
        with limited(self.call_s), muted() as out:
            yield
        self.watch.printed |= bool(out.getvalue())

    def _raw(self, inputs: Mapping) -> Outputs:
        arguments = self.arguments(inputs)
        before = {k: np.array(arrays.to_numpy(x)) for k, x in arguments.items() if _mutable(x)}
        with self.quiet():
            result = self._invoke_compiled(arguments)
            if result is None:
                raise Refused("returns nothing")
            outputs = []
            for name, x in arrays.outputs(result):
                with contextlib.suppress(TypeError, ValueError):
                    outputs.append((name, arrays.to_numpy(x)))
                    continue
                outputs.append((name, np.array(None)))
        for name, x in before.items():
            after = arrays.to_numpy(arguments[name])
            if after.shape != x.shape or not np.array_equal(
                after, x, equal_nan=x.dtype.kind == "f"
            ):
                self.watch.changed.add(name)
        return outputs


def _mutable(x: Any) -> bool:
    return isinstance(x, list | np.ndarray) or hasattr(x, "detach")
