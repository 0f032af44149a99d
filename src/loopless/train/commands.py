"""`loopless train`, `resume`, `play`, `plot`, `export`: from words on the command line to a run.

What a run does is in `runs.session`, what it learns in the trainers. Here settings of JAX are made
before JAX is imported. Imports `runs`; a trainer when one is named. Tests:
`tests/train/test_commands.py`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loopless.process import cores, even_share
from loopless.runs.config import resolve as configs
from loopless.runs.failures import BadConfig, Failure
from loopless.runs.folder import RunFolder
from loopless.train import registry

SMALL_LOOP = 2**17  # bytes that a loop reads and writes, up to which XLA makes one function of it


def train(arguments: Sequence[str]) -> int:
    """`loopless train NAME [flags]`: exit codes as in `runs.failures`."""
    return _told(_train, arguments)


def _train(arguments: Sequence[str]) -> int:
    name, *flags = arguments
    config = configs.resolve(registry.config_class(name), flags, f"loopless train {name}")
    prepare(config)
    module = registry.trainer(name)
    if hasattr(module, "before"):  # another run that this one needs
        config = module.before(config, train_new, lambda path: _resume(path, {}))
    train_new(name, config)
    return 0


def train_new(name: str, config: Any) -> Path:
    """A run of this trainer and config from its start to its end; its folder."""
    trainer = registry.trainer(name).make(config)
    try:
        run = RunFolder.create(config.runs, config.run, name, config)
    except BaseException:
        trainer.close()
        raise
    with run:
        print(f"Run {run.path}", file=sys.stderr)
        try:
            trainer.settle(run.path)
        except BaseException:
            trainer.close()
            raise
        _go(trainer, run, config)
        return run.path


def resume(path: Path, steps: int | None = None, on_nan: str | None = None) -> int:
    """`loopless resume RUN`: go on from the newest whole checkpoint."""
    return _told(_resume, path, {"steps": steps, "on_nan": on_nan})


def _resume(path: Path, asked: dict[str, Any]) -> int:
    from dataclasses import replace

    with RunFolder.open(path, lock=True) as run:
        given = run.config(registry.config_class(run.trainer))
        config = replace(given, **{name: x for name, x in asked.items() if x is not None})
        if wrong := config.problems():
            raise BadConfig(wrong)
        prepare(config)
        from loopless.runs.checkpoint import Checkpoints

        trainer = registry.reopened(run.trainer, config, run.path)
        checkpoints = Checkpoints(run.path)
        try:
            # A process that died early has left none, and then there is nothing to lose.
            found = checkpoints.load(template=trainer.arrays()) if checkpoints.names() else None
            for reason in found.skipped if found else ():
                print(f"Skipped {reason}", file=sys.stderr)
            if found and found.step >= trainer.total:
                print(f"Run {run.path} is done, at step {found.step:,}. --steps N trains on.")
                trainer.close()
                return 0
            if config != given:
                run.change_config(config)
        except BaseException:
            trainer.close()
            raise
        start = f"from {found.name}" if found else "which has no checkpoint, from its start"
        print(f"Run {run.path}, {start}", file=sys.stderr)
        _go(trainer, run, config, found)
        return 0


def _go(trainer: Any, run: RunFolder, config: Any, found: Any = None) -> None:
    from loopless.runs import session

    last = session.train(trainer, run, config, found)
    if outcome := trainer.outcome(last):
        print(f"{outcome} Plots in {run.path / 'plots'}.", file=sys.stderr)


def play(
    path: Path, episodes: int, checkpoint: str, seed: int, agent: int, record: Path | None
) -> int:
    """`loopless play RUN`: evaluate the trained policy, and record it on demand."""
    return _told(_play, path, episodes, checkpoint, seed, agent, record)


def _play(path, episodes, checkpoint, seed, agent, record) -> int:
    import numpy as np

    from loopless.runs.pictures import film

    if record is not None:
        film.check(record)
    run, config, weights = _weights(path, checkpoint, agent)
    module = registry.trainer(run.trainer)
    if not hasattr(module, "player"):
        raise BadConfig([f"{path} is a run of {run.trainer}, which plays in no environment."])
    player = module.player(config, weights)
    returns, lengths = player.episodes(episodes, seed)
    print(
        f"{run.name}, {checkpoint}: {returns.mean():.2f} ± {returns.std():.2f} over {episodes} "
        f"episodes (median {np.median(returns):.2f}, from {returns.min():.2f} to "
        f"{returns.max():.2f}; {lengths.mean():.0f} steps each)"
    )
    if record is not None:
        frames, rate = player.frames(seed)
        film.write_episode(record, frames, rate)
        print(f"Recorded {record}")
    return 0


def sample(path: Path, prompt: str, checkpoint: str, manner: Mapping[str, Any]) -> int:
    """`loopless sample RUN`: text from a trained language model, as it is written."""
    return _told(_sample, path, prompt, checkpoint, manner)


def _sample(path, prompt, checkpoint, manner) -> int:
    run = RunFolder.open(path)
    if run.trainer not in ("lm", "avatarl"):
        raise BadConfig([f"{path} is a run of {run.trainer}; lm and avatarl write text."])
    _, config, weights = _weights(path, checkpoint, 0)
    from loopless.train.lm import sampling

    options = sampling.SamplingOptions(**manner)
    if problems := options.problems():
        raise BadConfig(problems)
    for text in sampling.sample(path, config, weights, prompt, options):
        sys.stdout.write(text)
        sys.stdout.flush()
    print()
    return 0


def export(path: Path, output: Path | None, checkpoint: str, agent: int) -> int:
    """`loopless export RUN`: the policy as one safetensors file, with a card that explains it."""
    return _told(_export, path, output, checkpoint, agent)


def _export(path, output, checkpoint, agent) -> int:
    from loopless.runs.checkpoint import export_weights

    run, config, weights = _weights(path, checkpoint, agent)
    arrays, card = registry.trainer(run.trainer).export(config, weights)
    target = output or run.path / "policy.safetensors"
    export_weights(target, arrays, {"run": run.name, "trainer": run.trainer, **card})
    print(f"Written {target} and {target.with_suffix('.json')}")
    return 0


def _weights(path: Path, checkpoint: str, agent: int) -> tuple[RunFolder, Any, Any]:
    """A run, its config, and the weights of one of its agents."""
    from loopless.runs.checkpoint import Checkpoints

    run = RunFolder.open(path)
    config = run.config(registry.config_class(run.trainer))
    prepare(config)
    checkpoints = Checkpoints(run.path)
    name = None if checkpoint == "latest" else checkpoint
    if checkpoint == "best" and checkpoints.best() is None:
        name = None
    found = checkpoints.load(name, kind="weights").arrays
    agents = agents_of(found, getattr(config, "agents", config.seeds))
    if not 0 <= agent < len(agents):
        raise BadConfig([f"agent is {agent}; this run has agents 0 to {len(agents) - 1}."])
    return run, config, agents[agent]


def agents_of(arrays: Mapping[str, Any], seeds: int) -> list[dict[str, Any]]:
    """The arrays of a checkpoint that act, by name, of each agent."""
    acting = {
        name.removeprefix("weights/"): x for name, x in arrays.items() if name[:8] == "weights/"
    }
    if seeds == 1:
        return [acting]
    return [{name: x[agent] for name, x in acting.items()} for agent in range(seeds)]


def plot(paths: Sequence[Path], output: Path | None) -> int:
    """`loopless plot RUN [RUN…]`: one picture that compares them; a single run's own, redrawn."""
    return _told(_plot, paths, output)


def _plot(paths: Sequence[Path], output: Path | None) -> int:
    from loopless.runs.pictures import look, plots
    from loopless.runs.pictures.comparison import comparison

    if not paths:
        raise BadConfig(["plot: name one run or more."])
    for path in paths:
        RunFolder.open(path)
    if len(paths) == 1:
        run = plots.Run.read(paths[0])
        drawn = [plots.draw(run, name) for name in plots.PICTURES]
        print(f"Drawn {len([one for one in drawn if one])} pictures in {paths[0] / 'plots'}")
        if output is None:
            return 0
    target = output or Path("comparison.png")
    if target.suffix.lower() not in (".png", ".pdf", ".svg") or not target.parent.is_dir():
        raise BadConfig([f"plot: {target} is no .png, .pdf or .svg in a folder that is there."])
    look.write(comparison(paths), target)
    print(f"Drawn {target}")
    return 0


def prepare(config: Any) -> None:
    """Settings of JAX on the CPU, before it starts.

    A call that is waited for anyway runs faster where it is made; only an overlapped learner is to
    run beside its caller, and leaves one core to it: threads that look for work would take turns
    with the environments. A loop of little memory, such as the steps of an event, becomes one
    function instead of many calls a turn. Several agents have a core each, or share them evenly.
    """
    overlap = getattr(config, "overlap", False)
    _flag("--xla_cpu_enable_concurrency_optimized_scheduler=false")
    _flag(f"--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold={SMALL_LOOP}")
    if (sharing := even_share(getattr(config, "agents", config.seeds), cores())) > 1:
        _flag(f"--xla_force_host_platform_device_count={sharing}")
        os.environ.setdefault("PJRT_NPROC", str(cores() // sharing))
    if overlap:
        os.environ.setdefault("PJRT_NPROC", str(max(1, cores() - 1)))
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", overlap)


def _flag(flag: str) -> None:
    """Tell XLA, unless the user did."""
    told = os.environ.get("XLA_FLAGS", "")
    if flag.split("=")[0] not in told:
        os.environ["XLA_FLAGS"] = f"{told} {flag}".strip()


def _told(command: Any, *arguments: Any) -> int:
    """Run a command; failures in words and an exit code, not as tracebacks."""
    from loopless.envs import EnvError

    try:
        return command(*arguments)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    except EnvError as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "loopless":
            raise
        print(
            f"loopless: {error.name} is not installed. `pip install loopless[train]` brings all "
            f"that training needs.",
            file=sys.stderr,
        )
        return 2
