"""`loopless train`, `resume`, `play`, `sample`, `plot`, `export`: from command line to run.

`runs.session` has the loop of a run, the trainers have what is learned in it. `prepare` sets JAX up
before JAX is imported, so everything that needs JAX is imported inside functions.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec

from loopless.process import cores, even_share
from loopless.refusals import printable
from loopless.runs import config as configs
from loopless.runs.config.changes import refuse_changes
from loopless.runs.failures import BadConfig, Failure, writing
from loopless.runs.folder import RunFolder
from loopless.train import presets, registry

KNOWS_YNN = "0.10."  # the versions of jaxlib that have its flag; others would end the process
SMALL_LOOP = 2**17  # bytes: XLA makes one function of a loop that touches no more

Arguments = ParamSpec("Arguments")


def command(function: Callable[Arguments, Any]) -> Callable[Arguments, int]:
    """Make a function a command: it returns an exit code, and failures are printed in words."""

    @wraps(function)
    def run(*args: Arguments.args, **options: Arguments.kwargs) -> int:
        from loopless.envs import EnvError

        try:
            function(*args, **options)
            return 0
        except Failure as failure:
            say(str(failure))
            return failure.exit_code
        except EnvError as error:
            say(str(error))
            return error.exit_code
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "loopless":
                raise
            print(
                f"loopless: {error.name} is not installed. `pip install loopless[train]` installs "
                f"everything that training needs.",
                file=sys.stderr,
            )
            return 2

    return run


# --- training ------------------------------------------------------------------------------------


@command
def train(arguments: Sequence[str]) -> None:
    """`loopless train NAME [flags]`: train a new run."""
    name, *flags = arguments
    cls, preset = registry.config_class(name), partial(presets.find, name)
    config = configs.resolve(cls, flags, f"loopless train {name}", preset)
    for one in split_seeds(config):
        train_config(name, one)


def split_seeds(config: Any) -> list[Any]:
    """Return the configs of all runs of a command: one, or in hosted mode one for each seed."""
    if getattr(config, "seeds", 1) == 1 or not hasattr(config, "env"):
        return [config]
    from loopless.train.engine.players import is_hosted

    if not is_hosted(config):
        return [config]
    seeds = range(config.seed, config.seed + config.seeds)
    names = {seed: config.run and f"{config.run}-seed{seed}" for seed in seeds}
    return [replace(config, seeds=1, seed=seed, run=name) for seed, name in names.items()]


def train_config(
    name: str, config: Any, callback: Any = None, quiet: bool = False
) -> tuple[Path, bool]:
    """Train a new run, and before it those that it needs; return its folder, and if it stopped."""
    prepare(config)
    module = registry.trainer(name)
    if hasattr(module, "before"):  # this run needs another one first
        how = {"quiet": True} if quiet else {}
        config = module.before(config, partial(train_new, **how), partial(resume_run, **how))
    return _train_one(name, config, callback, quiet)


def train_new(name: str, config: Any, quiet: bool = False) -> Path:
    """Train a new run of this trainer and config to its end; return its folder."""
    return _train_one(name, config, None, quiet)[0]


def _train_one(name: str, config: Any, callback: Any, quiet: bool) -> tuple[Path, bool]:
    trainer = registry.trainer(name).make(config)
    try:
        run = RunFolder.create(config.runs, config.run, name, config)
    except BaseException:
        trainer.close()
        raise
    with run:
        say(f"Run {run.path}", quiet)
        if trainer.total > config.steps:
            say(f"{config.steps:,} steps become {trainer.total:,}: rounds are made whole.", quiet)
        try:
            trainer.write_inputs(run.path)
        except BaseException:
            trainer.close()
            raise
        return run.path, _run_session(trainer, run, config, None, callback, quiet)


@command
def resume(path: Path, steps: int | None = None, on_nan: str | None = None) -> None:
    """`loopless resume RUN`: continue from the newest whole checkpoint."""
    resume_run(path, steps=steps, on_nan=on_nan)


def resume_run(path: Path, callback: Any = None, quiet: bool = False, **changes: Any) -> bool:
    """Continue a run, with those `changes` of its config that are not None.

    Returns whether the callback ended it early.
    """
    with RunFolder.open(path, lock=True) as run:
        old_config = run.config(registry.config_class(run.trainer))
        config = replace(old_config, **{name: x for name, x in changes.items() if x is not None})
        if problems := config.problems():
            raise BadConfig(problems)
        prepare(config)
        from loopless.runs.checkpoint import Checkpoints

        trainer = registry.reopen(run.trainer, config, run.path)
        checkpoints, newest = Checkpoints(run.path), None
        try:
            # A process that died early has left no full checkpoint: there is nothing to lose.
            if checkpoints.have_state():
                check = refuse_changes(config, run.config_file)
                newest = checkpoints.load(template=trainer.arrays(), check=check)
                for reason in newest.skipped:
                    say(f"Skipped {reason}", quiet)
            evaluated = newest and not newest.numbers.get("evaluation_due")
            if newest and evaluated and newest.step >= trainer.total:
                done = f"Run {run.path} is done, at step {newest.step:,}. --steps N trains on."
                if newest.step > trainer.total:
                    done = (
                        f"Run {run.path} is at step {newest.step:,} already, past --steps "
                        f"{config.steps:,}, which counts from the run's start. Nothing was done."
                    )
                if not quiet:
                    print(printable(done))
                trainer.close()
                return False
            if config != old_config:
                run.change_config(config)
        except BaseException:
            trainer.close()
            raise
        start = f"from {newest.name}" if newest else "which has no full checkpoint, from its start"
        say(f"Run {run.path}, {start}", quiet)
        return _run_session(trainer, run, config, newest, callback, quiet)


def _run_session(
    trainer: Any, run: RunFolder, config: Any, newest: Any, callback: Any, quiet: bool
) -> bool:
    from loopless.runs import session

    how = {"callback": callback, "quiet": quiet}
    last, stopped, drew = session.train(trainer, run, config, newest, **how)
    pictures = f"Plots in {run.path / 'plots'}."
    if not drew:
        pictures = f"Its plots are older; `loopless plot {run.path}` draws them."
    if outcome := trainer.outcome(last):
        say(f"{outcome} {pictures}", quiet)
    return stopped


def prepare(config: Any) -> None:
    """Set up JAX on the CPU for a run of `config`, before JAX starts.

    Calls are synchronous, because a call that is waited for anyway runs faster in the thread that
    makes it. Only with `overlap` does the learner run beside its caller; then one core is left to
    the caller, because idle threads that look for work would slow the environments down. A loop
    over little memory, such as the steps of an event, becomes one function instead of many calls
    per iteration. Several agents have one core each, or share the cores evenly.
    """
    overlap = getattr(config, "overlap", False)
    _set_xla_flag("--xla_cpu_enable_concurrency_optimized_scheduler=false")
    _set_xla_flag(
        f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={SMALL_LOOP}"
    )
    if version("jaxlib").startswith(KNOWS_YNN):
        # YNNPACK's convolutions use one thread; Eigen's, which XLA uses otherwise, use all of them
        _set_xla_flag("--xla_cpu_experimental_ynn_fusion_type=-individual_convolution")
    if (sharing := even_share(_count_agents(config), cores())) > 1:
        _set_xla_flag(f"--xla_force_host_platform_device_count={sharing}")
        os.environ.setdefault("PJRT_NPROC", str(cores() // sharing))
    if overlap:
        os.environ.setdefault("PJRT_NPROC", str(max(1, cores() - 1)))
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", overlap)
    from loopless.arrays import programs

    if config.profile:
        from loopless.runs.progress.programs import program_times

        program_times()
    programs.keep(config.cache, lambda message: print(message, file=sys.stderr))


def _count_agents(config: Any) -> int:
    """Return how many agents a run of `config` trains: 1 if it has no setting for several."""
    return getattr(config, "agents", getattr(config, "seeds", 1))


def _set_xla_flag(flag: str) -> None:
    """Set a flag of XLA, unless the user has set it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag.split("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


# --- what is done with a trained run -------------------------------------------------------------


@command
def play(
    path: Path, episodes: int, checkpoint: str, seed: int, agent: int, record: Path | None
) -> None:
    """`loopless play RUN`: evaluate the trained policy, and record it if asked."""
    import numpy as np

    from loopless.runs.pictures import film

    if record is not None:
        film.check(record)
    if episodes < 1:
        raise BadConfig([f"episodes must be at least 1; received {episodes}."])
    player = load_player(path, checkpoint, agent)
    returns, lengths, cut = player.episodes(episodes, seed)
    result = (
        f"{path.resolve().name}, {checkpoint}: {returns.mean():.2f} ± {returns.std():.2f} over "
        f"{episodes} episodes (median {np.median(returns):.2f}, from {returns.min():.2f} to "
        f"{returns.max():.2f}; {lengths.mean():.0f} steps each"
        + (f", {cut} of them cut there)" if cut else ")")
    )
    print(printable(result))
    if record is not None:
        frames, rate = player.frames(seed)
        film.write_episode(record, frames, rate)
        print(f"Recorded {printable(record)}")


def load_player(path: Path, checkpoint: str, agent: int, *, quiet: bool = False) -> Any:
    """Return the player of a run; BadConfig if its trainer has nothing to play."""
    run, config, weights = load_weights(path, checkpoint, agent, quiet=quiet)
    module = registry.trainer(run.trainer)
    if not hasattr(module, "player"):
        raise BadConfig([f"{path} is a run of {run.trainer}, which plays in no environment."])
    return module.player(config, weights)


@command
def sample(path: Path, prompt: str, checkpoint: str, options: Mapping[str, Any]) -> None:
    """`loopless sample RUN`: print what a trained language model writes, as it writes it."""
    for text in sample_text(path, prompt, checkpoint, options):
        sys.stdout.write(printable(text))
        sys.stdout.flush()
    print()


def sample_text(
    path: Path, prompt: str, checkpoint: str, options: Mapping[str, Any], *, quiet: bool = False
) -> Iterator[str]:
    """Yield what a trained language model writes."""
    run = RunFolder.open(path)
    if run.trainer not in ("lm", "avatarl"):
        raise BadConfig([f"{path} is a run of {run.trainer}; only lm and avatarl write text."])
    _, config, weights = load_weights(path, checkpoint, 0, quiet=quiet)
    from loopless.train.lm import sampling

    settings = sampling.SamplingOptions(**options)
    if problems := settings.problems():
        raise BadConfig(problems)
    yield from sampling.sample(path, config, weights, prompt, settings)


@command
def export(path: Path, output: Path | None, checkpoint: str, agent: int) -> None:
    """`loopless export RUN`: write the policy as one safetensors file, and a card beside it."""
    from loopless.runs.checkpoint import export_weights

    run, config, weights = load_weights(path, checkpoint, agent)
    arrays, card = registry.trainer(run.trainer).export(config, weights)
    target = output or run.path / "policy.safetensors"
    export_weights(target, arrays, {"run": run.name, "trainer": run.trainer, **card})
    print(f"Wrote {printable(target)} and {printable(target.with_suffix('.json'))}")


def read_config(path: Path) -> Any:
    """Return the config of a run."""
    run = RunFolder.open(path)
    return run.config(registry.config_class(run.trainer))


def load_weights(
    path: Path, checkpoint: str, agent: int, *, quiet: bool = False
) -> tuple[RunFolder, Any, Any]:
    """Return a run, its config, and the weights of one of its agents.

    Which checkpoint they are from, and which were skipped, is printed; if `quiet`, only the latter.
    """
    from loopless.runs.checkpoint import load_chosen

    run = RunFolder.open(path)
    config = run.config(registry.config_class(run.trainer))
    prepare(config)
    chosen = load_chosen(run, config, checkpoint, quiet=quiet)
    agents = agents_of(chosen.arrays, _count_agents(config))
    if not 0 <= agent < len(agents):
        raise BadConfig([f"agent must be from 0 to {len(agents) - 1}; received {agent}."])
    return run, config, agents[agent]


def say(text: str, quiet: bool = False) -> None:
    """Print a line about what is going on, where it does not mix with results; unless `quiet`."""
    if not quiet:
        print(printable(text), file=sys.stderr)


def agents_of(arrays: Mapping[str, Any], seeds: int) -> list[dict[str, Any]]:
    """Return for each agent the arrays of a checkpoint that its policy acts with, by name."""
    prefix = "weights/"
    acting = {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    if seeds == 1:
        return [acting]
    return [{name: x[agent] for name, x in acting.items()} for agent in range(seeds)]


@command
def plot(paths: Sequence[Path], output: Path | None) -> None:
    """`loopless plot RUN [RUN…]`: draw a comparison, or the pictures of a single run again."""
    from loopless.runs.pictures import look, plots
    from loopless.runs.pictures.comparison import comparison

    if not paths:
        raise BadConfig(["plot: name one run or more."])
    for path in paths:
        RunFolder.open(path)
    if len(paths) == 1:
        run = plots.Run.read(paths[0])
        with writing(f"into {paths[0] / 'plots'}"):
            count = sum(bool(plots.draw(run, name)) for name in plots.PICTURES)
        print(f"Drew {count} pictures in {printable(paths[0] / 'plots')}")
        if output is None:
            return
    target = output or Path("comparison.png")
    if target.suffix.lower() not in (".png", ".pdf", ".svg") or not target.parent.is_dir():
        raise BadConfig(
            [f"plot: cannot write {target}. Name a .png, .pdf or .svg file in an existing folder."]
        )
    picture = comparison(paths)
    with writing(str(target)):
        look.write(picture, target)
    print(f"Drew {printable(target)}")
