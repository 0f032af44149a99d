"""The argument checks of AvataRL's kernels: one error names everything that is wrong.

Shapes, dtypes, libraries and devices are always checked; values only of NumPy arrays, numbers, and
PyTorch tensors on the CPU outside of traces.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.arrays.dispatch import on_host
from loopless.arrays.library import NUMBER, typed
from loopless.kernels.avatarl.recipe import VARIANTS, Numbers

CONFIDENCE = "confidence"


class Refusals(NamedTuple):
    """Makes the errors for logits that are no distribution; hashable, so that jit takes it."""

    function: str
    student_name: str = "student_logits"

    def student(self, position) -> ValueError:
        return self._row(self.student_name, position)

    def critic(self, position) -> ValueError:
        return self._row("critic_logits", position)

    def _row(self, name: str, position) -> ValueError:
        index = ", ".join(map(str, map(int, position)))
        return ValueError(
            f"{self.function}: {name}[{index}] holds NaN or +inf, or nothing above -inf. Mask the "
            f"position, or find out where that comes from."
        )


class Call:
    """The arguments of one call, checked one by one; `refuse` raises all problems at once.

    `logits` are one or two arrays [..., V] by name; `mask` and `targets` are [...].
    """

    def __init__(self, function: str, logits: dict[str, Any], mask, targets: Any = ...) -> None:
        self.function = function
        self.name, self.logits = next(iter(logits.items()))
        self.arguments = checks.Arguments(function, self.name, self.logits)
        self.library, self.problems = self.arguments.library, self.arguments.problems
        self.refuse, self._try = self.arguments.refuse, self.arguments.attempt
        self._logits(self.name, self.logits)
        self.refuse()
        for name, x in logits.items():
            self._try(self._like, name, x)
        self.refuse()  # the other checks need these shapes
        dtypes = [x.dtype for x in logits.values()]
        self.wide = self.library.wide(self.library.promote(dtypes[0], dtypes[-1]))
        self.mask = None if mask is None else self._try(self._flags, "mask", mask)
        self.targets: Any = None
        if targets is not ...:  # the function has none
            self.targets = self._try(self._tokens, "targets", targets)
        self.refusals = Refusals(function, self.name)

    def top_k(self, k) -> int:
        k = self._try(checks.integer, self.function, "top_k", k, 1)
        return min(k or 1, self.logits.shape[-1])

    def variant(self, variant) -> None:
        self._try(checks.choice, self.function, "variant", variant, VARIANTS)

    def number(self, name: str, x, low: float, high: float = math.inf, *, open_ends="") -> Any:
        """Return `x`, a finite number from `low` to `high`; `open_ends` names excluded ends.

        Beside arrays of JAX it may be a 0-d array, whose value is not checked.
        """
        if self.library.name == "jax" and checks.is_scalar_array(x):
            return x
        if isinstance(x, np.number):
            x = x.item()
        if isinstance(x, bool) or not isinstance(x, NUMBER):
            problem = TypeError(f"{name} is a {type(x).__name__}; it must be a number.")
            self.problems.append(problem)
            return low
        try:
            x = checks.as_float(self.function, name, x)
        except ValueError as problem:
            self.problems.append(problem)
            return low
        outside = not low <= x <= high or math.isinf(x)
        if outside or (x == low and "low" in open_ends) or (x == high and "high" in open_ends):
            start = f"above {low:g}" if "low" in open_ends else f"at least {low:g}"
            end = "finite" if math.isinf(high) else f"below {high:g}"
            self.problems.append(ValueError(f"{name} must be {start} and {end}; received {x}."))
        return x

    def numbers(self, reality, critic, smoothing, scale, clamp) -> Numbers:
        """Return the method's numbers; the weights are None where confidence sets them."""
        if isinstance(critic, str):
            self._try(checks.choice, self.function, "critic_weight", critic, (CONFIDENCE,))
            reality = critic = None
        else:
            reality = self._weight("reality_weight", reality)
            critic = self._weight("critic_weight", critic)
            self._some_weight(reality, critic)
        smoothing = self.number("label_smoothing", smoothing, 0, 1, open_ends="high")
        scale = self.number("reward_scale", scale, 0, open_ends="low")
        clamp = self.number("reward_clamp", clamp, 0, open_ends="low")
        self.refuse()
        return Numbers(reality, critic, smoothing, scale, clamp)

    def typed(self, numbers: Numbers) -> Numbers:
        """Return the numbers in the dtype of the computation, as constants."""
        return Numbers._make(map(self._typed, numbers))

    def tokens(self, name: str, x) -> Any:
        """Return `x` as tokens [..., w]."""
        return self._try(self._tokens, name, x, axes=1)

    def beside(self, name: str, x, like, like_name: str, kind: str) -> Any:
        """Return `x` if it has the shape of `like` and holds "flags", or "floats"."""

        def same():
            self._device(name, x)
            if not hasattr(like, "shape"):
                return None  # which is a problem of its own
            if x.shape != like.shape:
                raise self._misshapen(name, x, tuple(like.shape), like_name, like)
            if kind == "flags":
                return self.arguments.boolean(name, x)
            return self._floating(name, x)

        return self._try(same)

    def _logits(self, name, x) -> None:
        if self._try(self._floating, name, x) is not None and (x.ndim < 2 or x.shape[-1] == 0):
            self.problems.append(
                ValueError(
                    f"{self.function}: {name} has shape {tuple(x.shape)}; it must be [..., V], "
                    f"positions and then a vocabulary of at least one token."
                )
            )

    def _like(self, name, x) -> None:
        self.arguments.same_library(name, x)
        if x.shape != self.logits.shape:
            hint = (
                "Student and critic must share one vocabulary, token for token."
                if x.shape[:-1] == self.logits.shape[:-1]
                else "Both hold one row for each position."
            )
            raise ValueError(
                f"{self.function}: {name} has shape {tuple(x.shape)} but {self.name} has shape "
                f"{tuple(self.logits.shape)}. {hint}"
            )
        self._floating(name, x)
        self._device(name, x)

    def _floating(self, name, x) -> Any:
        if not self.library.is_float(x):
            raise TypeError(
                f"{self.function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, "
                f"float32 or float64."
            )
        return x

    def _device(self, name, x) -> None:
        self.arguments.alike(name, x)

    def _flags(self, name, x) -> Any:
        self._beside_positions(name, x)
        return self.arguments.boolean(name, x)

    def _beside_positions(self, name, x, axes: int = 0) -> None:
        self.arguments.same_library(name, x)
        positions = self.logits.shape[:-1]
        if x.ndim != len(positions) + axes or x.shape[: len(positions)] != positions:
            wanted = (*positions, "w") if axes else tuple(positions)
            raise self._misshapen(name, x, wanted, self.name, self.logits)
        self._device(name, x)

    def _misshapen(self, name, x, wanted, like_name, like) -> ValueError:
        shape = str(wanted).replace("'", "")
        return ValueError(
            f"{self.function}: {name} has shape {tuple(x.shape)}; beside {like_name} of shape "
            f"{tuple(like.shape)} it must be {shape}. Nothing is broadcast or squeezed here."
        )

    def _tokens(self, name, x, axes: int = 0) -> Any:
        self._beside_positions(name, x, axes)
        if self.library.kind(x) != "i":
            raise TypeError(f"{self.function}: {name} has dtype {x.dtype}; tokens are integers.")
        mask = self.mask if self.mask is None or not axes else self.mask[..., None]
        self._in_range(name, x, mask)
        if mask is not None:
            x = self.library.xp.where(mask, x, 0)  # masked positions may hold anything
        return x.long() if self.library.name == "torch" else x

    def _in_range(self, name, x, mask) -> None:
        views = on_host(self.library, x, mask)
        if views is None:
            return
        size = self.logits.shape[-1]
        tokens = views[0]
        is_outside = (tokens < 0) | (tokens >= size)
        if mask is not None:
            is_outside &= views[1]
        if is_outside.any():
            position = ", ".join(map(str, np.argwhere(is_outside)[0].tolist()))
            raise ValueError(
                f"{self.function}: {name} holds {tokens[is_outside][0]} at {position}; of {size} "
                f"tokens the first is 0 and the last {size - 1}. Positions without a token must be "
                f"masked."
            )

    def _weight(self, name, x) -> Any:
        positions = checks.Arguments(self.function, self.name, self.logits[..., 0])
        x = self._try(positions.number, name, x, 0.0, math.inf)
        if not hasattr(x, "dtype") or x.ndim == 0:
            return x
        views = on_host(self.library, x)
        if views is not None and not (views[0] >= 0).all():
            negative = views[0][~(views[0] >= 0)][0]
            self.problems.append(ValueError(f"{name} holds {negative}; weights are at least 0."))
        return x

    def _some_weight(self, reality, critic) -> None:
        if isinstance(reality, NUMBER) and isinstance(critic, NUMBER) and reality == critic == 0:
            self.problems.append(
                ValueError(
                    "reality_weight and critic_weight are both 0, so that every action is worth "
                    "the same; give at least one of them a positive weight."
                )
            )

    def _typed(self, x) -> Any:
        if x is None:
            return None
        x = typed(self.library, x, self.wide, self.logits)
        return x.detach() if self.library.name == "torch" else x
