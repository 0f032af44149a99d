"""Training from Python: `loopless.train_dqn` and its like, and the run that they return.

    run = loopless.train_dqn(env="CartPole-v1", steps=200_000)
    action = run.policy(observation)

They do what `loopless train` does: the same settings, checks, folder and files. Only an object that
has no name, such as a lambda or a class from a notebook, is a thing of this process alone.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np

from loopless.envs import EnvError, objects
from loopless.nets.exported import Policy
from loopless.runs import config as configs
from loopless.runs.failures import BadConfig
from loopless.runs.folder import RunFolder
from loopless.train import commands, policies, presets, registry
from loopless.train.typed_settings import (
    ALLOSettings,
    AvataRLSettings,
    DQNSettings,
    LMSettings,
    PPOSettings,
)

Callback = Callable[[Mapping[str, Any]], Literal["stop"] | None]
Columns = dict[str, np.ndarray]


class Evaluation(NamedTuple):
    """Episodes played without exploration: returns [n], lengths [n], how many were cut."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int

    @property
    def mean(self) -> float:
        """Return the mean of the returns."""
        return float(self.returns.mean())


class Run:
    """A run, in the folder `folder`, which the commands take as well: play, plot, export, resume.

    config: all settings of the run. stopped: whether a callback ended the last training early.
    """

    def __init__(self, folder: Path) -> None:
        run = RunFolder.open(folder)
        self.folder, self.trainer = run.path, run.trainer
        self.config: Any = run.config(registry.config_class(run.trainer))
        self.stopped = False
        self._policy: Any = None

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def metrics(self) -> Columns:
        """Return the rows that training logged, as columns by name; "step" is the first."""
        return self._columns("train")

    @property
    def evaluations(self) -> Columns:
        """Return the rows of evaluations, as columns by name."""
        return self._columns("eval")

    @property
    def policy(self) -> Policy:
        """Return the best policy of the run: `run.policy(observation)` is an action."""
        if self._policy is None:
            self._policy = policies.load_policy(self.folder)
        return self._policy

    def evaluate(
        self, episodes: int = 20, *, seed: int = 0, checkpoint: str = "best", agent: int = 0
    ) -> Evaluation:
        """Play episodes without exploration, as `loopless play` does."""
        if episodes < 1:
            raise BadConfig([f"episodes must be at least 1; received {episodes}."])
        player = commands.load_player(self.folder, checkpoint, agent, quiet=True)
        return Evaluation(*player.episodes(episodes, seed))

    def resume(
        self, steps: int | None = None, *, callback: Callback | None = None, quiet: bool = False
    ) -> "Run":
        """Train on from the newest checkpoint, up to `steps` of the whole run; return this run."""
        self.stopped = commands.resume_run(self.folder, callback, quiet, steps=steps)
        self.config = RunFolder.open(self.folder).config(type(self.config))
        self._policy = None
        return self

    def sample(
        self,
        prompt: str = "",
        *,
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        repetition_penalty: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Return text that a language model writes, as `loopless sample` does."""
        options = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
        options["repetition_penalty"] = repetition_penalty
        return "".join(commands.sample_text(self.folder, prompt, "best", options, quiet=True))

    def _columns(self, kind: str) -> Columns:
        from loopless.runs import columns

        return columns.columns(columns.read(self.folder / "metrics.jsonl"), kind)


def open_run(
    folder: str | Path, *, env: Any = None, network: Any = None, wrappers: Sequence[Any] = ()
) -> Run:
    """Return a run that was trained before, here or elsewhere.

    env, network, wrappers: what the run was trained with, if these were objects without a name;
    such a run can only be evaluated and resumed with them.
    """
    run = Run(Path(folder))
    named = {"env": env, "network": network} if hasattr(run.config, "env") else {}
    for key, thing in named.items():
        if thing is not None:
            objects.keep(getattr(run.config, key), _maker(thing) if key == "env" else thing)
    for name, wrapper in zip(getattr(run.config, "wrapper", ()), wrappers, strict=False):
        objects.keep(name, wrapper)
    return run


def train_dqn(
    env: Any = None,
    *,
    callback: Callback | None = None,
    network: Any = None,
    wrappers: Sequence[Any] = (),
    preset: str | None = None,
    quiet: bool = False,
    **settings: Unpack[DQNSettings],
) -> Run:
    """Train deep Q-learning, and return the run.

        def log(row):                                # after each row of metrics
            if row.get("eval_return", 0) >= 475:
                return "stop"

        run = loopless.train_dqn(env="CartPole-v1", steps=200_000, callback=log)

    env: a Gymnasium id, by default the preset's or CartPole-v1; a class or function that makes
        environments; an environment, of which copies are trained on; or a compiled environment
        (docs/environments.md).
    callback: is called with each row of metrics, a dict with "step" and "kind" ("train" or
        "eval"). If it returns "stop", training ends, and the run is saved; `resume` continues it.
    network: a function from (shape of observations, number of actions, key) to an Equinox module,
        which maps one observation to one value for each action.
    wrappers: functions or classes that wrap an environment, the innermost first.
    preset: settings that are known to work, by name (`loopless presets`); those given here win.
    quiet: print nothing.
    settings: all settings of `loopless train dqn --help`, with underscores.
    """
    names = _name_objects(env, network, wrappers, settings)
    return _train("dqn", {**settings, **names}, callback, quiet, preset)


def train_ppo(
    env: Any = None,
    *,
    callback: Callback | None = None,
    network: Any = None,
    wrappers: Sequence[Any] = (),
    preset: str | None = None,
    quiet: bool = False,
    **settings: Unpack[PPOSettings],
) -> Run:
    """Train proximal policy optimization, and return the run.

        run = loopless.train_ppo(env="Pendulum-v1", steps=200_000)

    The arguments are those of `train_dqn`, and the settings those of `loopless train ppo --help`.
    A network of your own is a function from (shape of observations, number of outputs, key) to an
    Equinox module, which maps one observation to a pair: the outputs that the policy is made of,
    and the value of the state.
    """
    names = _name_objects(env, network, wrappers, settings)
    return _train("ppo", {**settings, **names}, callback, quiet, preset)


def train_allo(
    *,
    callback: Callback | None = None,
    preset: str | None = None,
    quiet: bool = False,
    **settings: Unpack[ALLOSettings],
) -> Run:
    """Learn a Laplacian representation, and return the run.

        run = loopless.train_allo(grid="GridRoom-4", steps=5_000)

    callback, preset, quiet: as in `train_dqn`. settings: those of `loopless train allo --help`.
    """
    return _train("allo", settings, callback, quiet, preset)


def train_lm(
    *,
    callback: Callback | None = None,
    preset: str | None = None,
    quiet: bool = False,
    **settings: Unpack[LMSettings],
) -> Run:
    """Train a language model by cross-entropy, and return the run.

        run = loopless.train_lm(text="my_texts/", steps=500)
        print(run.sample("Once upon "))

    callback, preset, quiet: as in `train_dqn`. settings: those of `loopless train lm --help`.
    """
    return _train("lm", settings, callback, quiet, preset)


def train_avatarl(
    *,
    callback: Callback | None = None,
    preset: str | None = None,
    quiet: bool = False,
    **settings: Unpack[AvataRLSettings],
) -> Run:
    """Train a language model by AvataRL, and return the run; its critic is trained first.

        run = loopless.train_avatarl(text="my_texts/", steps=500)

    callback, preset, quiet: as in `train_dqn`. settings: those of `loopless train avatarl --help`.
    """
    return _train("avatarl", settings, callback, quiet, preset)


def _train(
    name: str,
    settings: Mapping[str, Any],
    callback: Callback | None,
    quiet: bool,
    preset: str | None,
) -> Run:
    cls, file = registry.config_class(name), preset and presets.find(name, preset)
    config = configs.from_values(cls, settings, f"train_{name}", file or None)
    if len(commands.split_seeds(config)) > 1:
        reason = f"seeds is {config.seeds}, and this environment is hosted."
        raise BadConfig([f"{reason} Call train_{name} once for each seed."])
    folder, stopped = commands.train_config(name, config, callback, quiet)
    run = Run(folder)
    run.stopped = stopped
    return run


# --- objects in place of names -------------------------------------------------------------------


def _name_objects(
    env: Any, network: Any, wrappers: Sequence[Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that name the user's objects."""
    names: dict[str, Any] = {}
    if env is not None:
        names["env"] = objects.name_of(_maker(env))
    if network is not None:
        names["network"] = objects.name_of(network)
    if wrappers:
        wrapped = [objects.name_of(wrapper) for wrapper in wrappers]
        names["wrapper"] = [*settings.get("wrapper", ()), *wrapped]
    return names


def _maker(env: Any) -> Any:
    """Return what makes environments such as `env`: itself, unless it is Gymnasium's Env."""
    import gymnasium

    if isinstance(env, gymnasium.vector.VectorEnv):
        raise EnvError(
            "envs: env is a vector environment. Pass the id, the class or a function of a single "
            "one; envs= says how many are stepped together."
        )
    if not isinstance(env, gymnasium.Env):
        return env

    def copy() -> gymnasium.Env:
        try:
            return deepcopy(env)
        except Exception as error:
            raise EnvError(
                f"envs: this {type(env.unwrapped).__name__} cannot be copied ({error}). Pass its "
                f"class, or a function that makes it."
            ) from error

    copy.__name__ = copy.__qualname__ = f"<{type(env.unwrapped).__name__}>"
    return copy
