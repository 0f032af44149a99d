"""The settings that trainers share, and the checks of single numbers.

Every config class extends `RunOptions`; those of trainers whose agents act in environments extend
`AgentOptions`, too. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from loopless.runs.config.schema import Table

# The headings under which `--help` lists settings, for all trainers; the rest comes last.
GROUPS = {
    "run": (
        "config", "preset", "steps", "seed", "seeds", "run", "runs", "mode", "overlap",
        "overlap_events", "on_nan", "cache", "profile",
    ),
    "environment": (
        "env", "env_kwargs", "wrapper", "envs", "vectorization", "step_timeout", "horizon", "grid",
        "doors", "door_seed", "data", "terminals", "env_steps", "episode_length", "inputs",
    ),
    "text": (
        "text", "tokenizer", "vocabulary", "validation_share", "tokens", "validation_tokens",
        "token_type", "tokenizer_file", "order", "critic", "critic_checkpoint", "critic_steps",
        "critic_size", "critic_seed", "cache_critic",
    ),
    "network": (
        "net", "network", "hidden", "activation", "duelling", "shared", "core", "core_width",
        "squash", "state_std", "log_std_start", "components", "size", "layers", "heads", "width",
        "block", "compute", "recompute",
    ),
    "exploration": ("exploration", "explore_start", "explore_end", "explore_steps"),
    "replay": (
        "buffer_size", "frames", "batch_size", "learning_starts", "newest", "prioritized", "alpha",
        "beta", "priority_epsilon", "n_step",
    ),
    "output": (
        "log_every", "plot_every", "checkpoint_every", "tensorboard", "eval_every",
        "eval_episodes", "eval_max_steps", "eval_windows",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """The settings of every run. Each trainer says what its steps are."""

    GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = GROUPS

    steps: int = 100_000
    """Number of steps of the whole run."""
    seed: int = 0
    """Seed of all random numbers."""
    run: str | None = None
    """Name of the run's folder under `runs`; the next free name if left out."""
    runs: Path = Path("runs")
    """Folder in which the folders of all runs are."""
    log_every: int = 1_000
    """Steps between two rows of metrics."""
    plot_every: int = 10_000
    """Steps between two drawings of the plots; 0 draws them only at the end."""
    checkpoint_every: int = 10_000
    """Steps between two checkpoints."""
    on_nan: Literal["stop", "skip"] = "stop"
    """What to do about an update that is not finite: stop the run, or skip that update."""
    profile: bool = False
    """Print where the time was spent and what was compiled, and write a JAX trace into the run's
    folder."""
    tensorboard: bool = False
    """Also write TensorBoard files."""
    cache: bool = True
    """Keep compiled programs on disk between runs (`loopless cache`)."""

    def problems(self) -> list[str]:
        """Return what is wrong with the shared settings, one sentence for each."""
        problems = range_problems(self, LEAST)
        problems += [
            f"{name} must be finite; received {value}."
            for name, value in vars(self).items()
            if _is_infinite(value)
        ]
        hidden = getattr(self, "hidden", ())
        if any(width < 1 for width in hidden):
            problems.append(f"hidden must have widths of at least 1; received {hidden}.")
        if self.tensorboard:
            from loopless.runs import tensorboard

            problems += tensorboard.problems()
        return problems


LEAST = {"steps": 1, "seed": 0, "log_every": 1, "plot_every": 0, "checkpoint_every": 1}


@dataclass(frozen=True)
class AgentOptions:
    """The settings of runs whose agents act in environments. Steps are environment steps."""

    env: str = "CartPole-v1"
    """Environment: a Gymnasium id; module:Id, where importing the module registers the id;
    module:Class of your own, Gymnasium's or compiled; or gymnax:Id."""
    env_kwargs: Table = field(default_factory=Table)
    """An argument for the environment's constructor, such as --env-kwargs.map_name 8x8."""
    wrapper: tuple[str, ...] = ()
    """Wrappers around the environment, module:Class, the innermost first (hosted mode). The flag
    may be given several times."""
    mode: Literal["auto", "compiled", "hosted"] = "auto"
    """compiled: environment and learner are one program. hosted: any Gymnasium environment.
    auto: compiled if there is a compiled environment of that id, and neither overlap,
    vectorization, wrapper nor arguments of a Gymnasium environment are set."""
    steps: int = 500_000
    """Number of environment steps of the whole run, over all envs."""
    seeds: int = 1
    """Number of agents, with the seeds `seed`, `seed` + 1, … Compiled mode trains them in one
    program, hosted mode one after the other, each as a run of its own."""
    envs: int = 1
    """Number of environments that are stepped together."""
    vectorization: Literal["auto", "sync", "async", "native", "envpool"] = "auto"
    """How hosted environments are stepped together."""
    step_timeout: float = 0.0
    """Hosted mode: seconds that one step of one environment may take before the run is saved and
    ended; 0 waits for ever."""
    overlap: bool = False
    """Hosted mode: act while the learner works, with weights that are one call old. A slightly
    different algorithm, and faster on two cores."""
    net: Literal["auto", "mlp", "conv"] = "auto"
    """Kind of network. auto: convolutions for images of bytes, otherwise an MLP."""
    network: str | None = None
    """A network of your own: module:function, from (shape of observations, number of outputs, key)
    to an Equinox module. It is used in place of all other settings of the network."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    gamma: float = 0.99
    """Discount factor."""
    eval_every: int = 25_000
    """Environment steps between two evaluations without exploration; 0 turns them off."""
    eval_episodes: int = 10
    """Number of episodes of an evaluation."""
    eval_max_steps: int | None = None
    """Steps after which an episode of an evaluation is cut; if left out, the environment's own
    limit, or 10,000 if it has none."""
    log_every: int = 5_000
    """Environment steps between two rows of metrics."""
    plot_every: int = 50_000
    """Environment steps between two drawings of the plots; 0 draws them only at the end."""
    checkpoint_every: int = 100_000
    """Environment steps between two checkpoints."""

    def mode_problems(self) -> list[str]:
        """Return what the chosen mode cannot do, one sentence for each."""
        problems = []
        if self.mode == "compiled" and self.wrapper:
            problems.append("wrapper is for hosted mode; a compiled run steps no Gymnasium env.")
        if self.wrapper and self.vectorization in ("native", "envpool"):
            problems.append("wrapper needs vectorization sync or async.")
        if self.mode == "compiled" and self.overlap:
            problems.append("overlap is for hosted mode; a compiled run has nothing to wait for.")
        if self.mode == "compiled" and self.vectorization != "auto":
            problems.append(
                "vectorization is for hosted mode; compiled envs are always side by side."
            )
        if self.step_timeout and self.vectorization in ("native", "envpool"):
            problems.append("step_timeout needs vectorization sync or async.")
        return problems


AGENT_LEAST = {
    "seeds": 1, "envs": 1, "eval_every": 0, "eval_episodes": 1, "eval_max_steps": 1,
    "step_timeout": 0,
}  # fmt: skip


def range_problems(
    config: Any,
    least: Mapping[str, float],
    *,
    shares: Iterable[str] = (),
    positive: Iterable[str] = (),
) -> list[str]:
    """Return a sentence for each setting that is outside its range; None is in every range.

    least: the smallest allowed value by name. shares: settings in [0, 1]. positive: above 0.
    """
    limits = [(name, f"at least {low}", lambda x, low=low: x >= low) for name, low in least.items()]
    limits += [(name, "between 0 and 1", lambda x: 0 <= x <= 1) for name in shares]
    limits += [(name, "above 0", lambda x: x > 0) for name in positive]
    return [
        f"{name} must be {limit}; received {value}."
        for name, limit, is_inside in limits
        if (value := getattr(config, name)) is not None and not is_inside(value)
    ]


def _is_infinite(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return any(isinstance(x, float) and abs(x) == float("inf") for x in values)


def uses_convolutions(net: str, shape: tuple[int, ...], is_image: bool) -> bool:
    """Return whether a network for observations of this shape starts with convolutions.

    `net` is the setting: auto, mlp or conv. Raises BadConfig if conv is asked for and cannot be.
    """
    from loopless.runs.failures import BadConfig

    conv = net == "conv" or (net == "auto" and is_image)
    if conv and not (len(shape) == 3 and min(shape[:2]) >= 2):
        raise BadConfig(
            [f"net=conv needs images [height, width, channels]; the observations are {shape}."]
        )
    return conv
