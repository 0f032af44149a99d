"""The settings of an ALLO run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from loopless.train.engine.options import RunOptions, range_problems

DERIVED = math.nan  # a tenth of learning_rate, computed when a config is made


@dataclass(frozen=True)
class ALLO(RunOptions):
    """Laplacian representations: the first eigenvectors of an environment's Laplacian, in order.

    A uniformly random walk is recorded, and an encoder learns from pairs of a state and a later
    state, by the augmented Lagrangian objective or by generalized graph drawing, its predecessor.
    The defaults learn the grid GridRoom-4.
    """

    TRACED: ClassVar = (
        "steps", "discount", "max_gap", "learning_rate", "learning_rate_end", "dual_start",
        "dual_rate", "dual_limit", "proportional_gain", "integral_gain", "integral_decay",
        "barrier_rate", "barrier_limit", "gate_threshold", "perturbation_scale",
        "perturbation_width",
    )  # fmt: skip

    steps: int = 20_000
    """Gradient steps in all."""
    seeds: int = 1
    """Train this many agents in one program, with the seeds from `seed` on, each on its own
    walks."""
    log_every: int = 500
    """Gradient steps between two rows of metrics."""
    plot_every: int = 1_000
    """Gradient steps between two drawings of the pictures; 0: only at the end."""
    checkpoint_every: int = 5_000
    """Gradient steps between two checkpoints."""

    grid: str = "GridRoom-4"
    """Name of a grid (GridRoom-16, GridMaze-19-seed0), or a file with a layout. Its goals are
    ignored."""
    doors: int = 0
    """Turn this many passages of the grid into one-way doors."""
    door_seed: int = 42
    """Seed of the choice of these passages."""
    data: Path | None = None
    """Trajectories to learn from instead of a grid: an .npz file with obs and terminals, flat or
    padded, and optionally lengths and weights."""
    terminals: Literal["double", "single", "none"] = "double"
    """How `data` marks the ends of episodes. double: at the last state that acted and at the final
    state. single: at the final state. none: every row is one episode."""
    law: Literal["transition", "episode"] = "transition"
    """How pairs are drawn from `data`. transition: every start is equally likely. episode: first a
    row, then one of its starts."""
    weights: str = "visits"
    """How often a state is drawn. visits: as often as it was visited. uniform: every state equally
    often. Or an .npy file with one number per state, by which its visits are multiplied."""
    envs: int = 1_000
    """Copies of the grid that are walked in."""
    env_steps: int = 1_000
    """Steps in each copy."""
    episode_length: int = 50
    """Steps of an episode."""

    components: int = 11
    """Number of eigenvectors to learn."""
    inputs: Literal["xy", "onehot", "pixels"] = "xy"
    """What the encoder sees of a grid's state."""
    net: Literal["auto", "mlp", "conv"] = "auto"
    """auto: convolutions for images of bytes, otherwise an MLP."""
    hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["relu", "tanh", "selu"] = "relu"
    """Activation after each hidden layer."""
    encode: Literal["auto", "states", "batches"] = "auto"
    """states: encode every distinct state once per step, and gather the batches' features.
    batches: encode the drawn states. Both give the same numbers; auto takes the cheaper one."""

    objective: Literal["allo", "ggdo"] = "allo"
    """allo: augmented Lagrangian. ggdo: generalized graph drawing, with a fixed penalty."""
    scale: Literal["half", "full"] = "half"
    """half: half the squared differences, with constraints on the pairs' own states. full: the
    whole differences, with constraints on two further batches; its duals are twice as large, and
    the barrier must be, too."""
    discount: float = 0.9
    """Discount of the geometric gap between the states of a pair; 0 is always the next step."""
    max_gap: int | None = None
    """The longest gap; no limit if left out."""
    batch_size: int = 1_024
    """Pairs per gradient step, and states in each further batch."""
    learning_rate: float = 1e-3
    """Adam's step size at the start."""
    learning_rate_end: float = DERIVED
    """Adam's step size at the end of the run, reached in a line; a tenth of learning_rate if left
    out."""
    dual_start: float = 0.0
    """First value of the duals, on the diagonal and below."""
    dual_rate: float = 1e-3
    """Step size of the duals."""
    dual_limit: float = 100.0
    """The duals stay within ± this."""
    proportional_gain: float = 1.0
    """Weight of the constraints' errors in the duals' steps."""
    integral_gain: float = 0.0
    """Weight of the errors' running sum in the duals' steps."""
    integral_decay: float = 0.99
    """How much of that sum is left after a step."""
    barrier: tuple[float, ...] = (1.0,)
    """First weight of the squared constraints. With several values, one agent per value and seed is
    trained. If it is below the largest eigenvalue to be learned, late components fail."""
    barrier_rate: float = 0.0
    """How fast the barrier rises while the constraints are violated."""
    barrier_limit: float = 10_000.0
    """The barrier stays below this."""
    gate_threshold: float | None = None
    """Train a component only where no earlier one violates a constraint by more than this."""
    perturbation: Literal["none", "exponential", "squared", "squared-null-grad"] = "none"
    """A term that pushes components away from being constant."""
    perturbation_scale: float = 0.01
    """Weight of the perturbation."""
    perturbation_width: float = 0.1
    """Width of the perturbation."""
    permute_at: int | None = None
    """Shuffle the outputs once, before this step, to test whether their order is found again."""

    def __post_init__(self) -> None:
        if isinstance(self.learning_rate_end, float) and math.isnan(self.learning_rate_end):
            object.__setattr__(self, "learning_rate_end", 0.1 * self.learning_rate)

    @property
    def agents(self) -> int:
        """The number of encoders that are trained side by side."""
        return self.seeds * len(self.barrier)

    @property
    def constrains_apart(self) -> bool:
        """Whether the constraints are on two batches of their own, not on the pairs' states."""
        return self.objective == "ggdo" or self.scale == "full"

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        problems = super().problems() + range_problems(
            self, LEAST,
            shares=("integral_decay",),
            positive=("learning_rate", "perturbation_width", "gate_threshold"),
        )  # fmt: skip
        if not 0 <= self.discount < 1:
            problems.append(f"discount must be in [0, 1); received {self.discount}.")
        if not self.barrier or not all(value >= 0 for value in self.barrier):
            problems.append(
                f"barrier must be one or more numbers of at least 0; received {self.barrier}."
            )
        if self.episode_length >= 1 and self.env_steps % self.episode_length:
            problems.append(
                f"env_steps must be a multiple of episode_length={self.episode_length}; received "
                f"{self.env_steps}."
            )
        if self.permute_at is not None and self.permute_at >= self.steps:
            problems.append(
                f"permute_at must be below the {self.steps} steps of the run; received "
                f"{self.permute_at}."
            )
        if self.objective == "ggdo" and self.scale != "half":
            problems.append("scale is for objective=allo; ggdo has its own. Leave scale out.")
        if self.data is not None:
            for name in FOR_GRIDS:
                if getattr(self, name) != getattr(ALLO, name):
                    problems.append(f"{name} is for grids, but the states come from data.")
        if self.weights != "visits" and self.law != "transition":
            problems.append("weights need law=transition, which they change; law is episode.")
        return problems


FOR_GRIDS = ("grid", "doors", "inputs")
LEAST = {
    "doors": 0, "door_seed": 0, "envs": 1, "env_steps": 1, "episode_length": 1, "seeds": 1,
    "components": 1, "max_gap": 1, "batch_size": 1, "learning_rate_end": 0, "dual_rate": 0,
    "dual_limit": 0, "barrier_rate": 0, "barrier_limit": 0, "permute_at": 1,
}  # fmt: skip
