"""The settings of an ALLO run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from loopless.train.engine import options

A_TENTH = float("nan")  # stands for a tenth of the learning rate until a config is made


@dataclass(frozen=True)
class ALLO(options.RunOptions):
    """Laplacian representations: the first eigenvectors of an environment's Laplacian, in order.

    A uniformly random walk is recorded, and an encoder learns from pairs of a state and a later
    one: by the augmented Lagrangian objective, or by the graph-drawing objective before it. The
    defaults learn GridRoom-4.
    """

    grid: str = "GridRoom-4"
    """Name of a grid (GridRoom-16, GridMaze-19-seed0), or a file with a layout. Its goals are
    left out."""
    doors: int = 0
    """So many passages of the grid become one-way."""
    door_seed: int = 42
    """The seed of which ones."""
    data: Path | None = None
    """Trajectories to learn from in place of a grid: an .npz with obs and terminals, flat or
    padded, and optionally lengths and weights."""
    terminals: Literal["double", "single", "none"] = "double"
    """How `data` marks ends. double: at the state that acted last and at the final one. single:
    at the final one. none: every row is one episode."""
    law: Literal["transition", "episode"] = "transition"
    """How pairs of `data` are drawn. transition: all starts alike. episode: a row, then one of
    its starts."""
    weights: str = "visits"
    """How often states are drawn. visits: as often as they were visited. uniform: all alike. Or an
    .npy file with one number a state, by which the visits are multiplied."""
    envs: int = 1_000
    """Copies of the grid that are walked in."""
    env_steps: int = 1_000
    """Steps in each."""
    episode_length: int = 50
    """Steps of an episode."""

    steps: int = 20_000
    """Gradient steps in all."""
    seeds: int = 1
    """Train so many agents in one program, with seeds from `seed` on, each on walks of its own."""
    components: int = 11
    """Eigenvectors to learn."""
    inputs: Literal["xy", "onehot", "pixels"] = "xy"
    """What the encoder sees of a grid's state."""
    net: Literal["auto", "mlp", "conv"] = "auto"
    """auto: convolutions for images of bytes, else an MLP."""
    hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["relu", "tanh", "selu"] = "relu"
    """What follows each hidden layer."""
    encode: Literal["auto", "states", "batches"] = "auto"
    """states: every distinct state goes through the encoder once a step, and batches gather the
    features. batches: what was drawn goes through. The same numbers; auto takes the cheaper."""

    objective: Literal["allo", "ggdo"] = "allo"
    """allo: augmented Lagrangian. ggdo: generalised graph drawing, with a fixed penalty."""
    scale: Literal["half", "full"] = "half"
    """half: half the squared differences, constraints on the pairs' own states. full: the whole,
    constraints on two further batches; duals are twice as large, and so must the barrier be."""
    discount: float = 0.9
    """Of the geometric gap between the states of a pair: 0 is the next step."""
    max_gap: int | None = None
    """No gap is longer than this; no limit if left out."""
    batch_size: int = 1_024
    """Pairs in a gradient step, and states in each further batch."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    learning_rate_end: float = A_TENTH
    """Step size at the end of the run, reached in a line; a tenth of the first if left out."""
    dual_start: float = 0.0
    """Duals at the start, on the diagonal and below."""
    dual_rate: float = 1e-3
    """Step size of the duals."""
    dual_limit: float = 100.0
    """Duals stay within ± this."""
    proportional_gain: float = 1.0
    """What the constraints' errors weigh in the duals' steps."""
    integral_gain: float = 0.0
    """What the errors' running sum weighs there."""
    integral_decay: float = 0.99
    """How much of that sum is left after a step."""
    barrier: tuple[float, ...] = (1.0,)
    """Weight of the squared constraints at the start. Several train as many agents side by side,
    for each seed. Below the largest eigenvalue asked for, late components fail."""
    barrier_rate: float = 0.0
    """How fast the barrier rises while the constraints are violated."""
    barrier_limit: float = 10_000.0
    """The barrier stays below this."""
    gate_threshold: float | None = None
    """A component takes part only where all before it violate no constraint by more than this."""
    perturbation: Literal["none", "exponential", "squared", "squared-null-grad"] = "none"
    """What lifts components off the constant."""
    perturbation_scale: float = 0.01
    """Its weight."""
    perturbation_width: float = 0.1
    """Its width."""
    permute_at: int | None = None
    """Before this step the outputs are shuffled, once: a test of whether order is found again."""

    log_every: int = 500
    """Gradient steps between two rows of metrics."""
    plot_every: int = 1_000
    """Gradient steps between two drawings of the pictures; 0: only at the end."""
    checkpoint_every: int = 5_000
    """Gradient steps between two checkpoints."""

    eval_every: ClassVar[int] = 0  # every row of metrics judges all that there is

    def __post_init__(self) -> None:
        if math.isnan(self.learning_rate_end):
            object.__setattr__(self, "learning_rate_end", 0.1 * self.learning_rate)

    @property
    def agents(self) -> int:
        """Encoders that are trained side by side."""
        return self.seeds * len(self.barrier)

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        wrong = super().problems() + options.range_problems(
            self, LEAST,
            shares=("integral_decay",),
            positive=("learning_rate", "perturbation_width", "gate_threshold"),
        )  # fmt: skip
        if not 0 <= self.discount < 1:
            wrong.append(f"discount is {self.discount}; it lies in [0, 1).")
        if not self.barrier or not all(value >= 0 for value in self.barrier):
            wrong.append(f"barrier is {self.barrier}; it is one number or more, from 0 up.")
        if self.episode_length >= 1 and self.env_steps % self.episode_length:
            wrong.append(
                f"env_steps is {self.env_steps}, which is no multiple of "
                f"episode_length={self.episode_length}."
            )
        if self.permute_at is not None and self.permute_at >= self.steps:
            wrong.append(f"permute_at is {self.permute_at}; the run ends at {self.steps}.")
        if self.objective == "ggdo" and self.scale != "half":
            wrong.append("scale is for allo; ggdo has one of its own.")
        if self.data is not None:
            given = [name for name in OF_GRIDS if getattr(self, name) != getattr(ALLO(), name)]
            wrong += [f"{name} is for grids; data has states of its own." for name in given]
        if self.weights != "visits" and self.law != "transition":
            wrong.append("law is transition where weights say how often a state is drawn.")
        return wrong


OF_GRIDS = ("grid", "doors", "inputs")
LEAST = {
    "doors": 0, "door_seed": 0, "envs": 1, "env_steps": 1, "episode_length": 1,
    "seeds": 1, "components": 1, "max_gap": 1, "batch_size": 1, "learning_rate_end": 0,
    "dual_rate": 0, "dual_limit": 0, "barrier_rate": 0, "barrier_limit": 0, "permute_at": 1,
}  # fmt: skip
