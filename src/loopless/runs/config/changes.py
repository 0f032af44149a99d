"""Refuse a config that is not the one which a checkpoint was saved with.

The manifest of a checkpoint holds the settings that it was trained with, under its checksum.
`config.toml` is a file that people edit: with another activation it would make another policy out
of the same weights, and nobody would notice.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loopless.runs.config import schema, toml
from loopless.runs.failures import BadRun

# Settings that may change when a run is resumed: they do not affect what is learned.
MAY_CHANGE = {
    "steps", "run", "runs", "eval_every", "eval_episodes", "eval_max_steps", "log_every",
    "plot_every", "checkpoint_every", "on_nan", "profile", "tensorboard", "step_timeout", "cache",
}  # fmt: skip


def fixed_settings(config: Any) -> dict[str, Any]:
    """Return the settings that a run must have in common with its checkpoints, as plain values."""
    return _without_free(toml.tree_of(config))


def refuse_changes(config: Any, file: Any) -> Callable[[str, Mapping[str, Any]], None]:
    """Return a check for `Checkpoints.load`: it raises BadRun with all keys that differ.

    `file` is the config.toml that `config` was read from. Checkpoints without settings, of the
    first versions, are accepted.
    """
    now = fixed_settings(config)

    def check(checkpoint: str, numbers: Mapping[str, Any]) -> None:
        saved = numbers.get("config", now)
        if not isinstance(saved, dict):
            raise BadRun(
                f"run: the settings in the manifest of {checkpoint} are broken: they must be a "
                f"table; received {str(saved)[:60]}."
            )
        before = _without_free(_complete(type(config), saved))
        changed = [
            f"{name}: {_show(before, name)} → {_show(now, name)}"
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        ]
        if changed:
            raise BadRun(
                f"run: {file} has changed since {checkpoint} was saved: {'; '.join(changed)}. "
                f"Change it back; or start a run of its own, with --config."
            )

    return check


def _show(settings: Mapping[str, Any], name: str) -> str:
    return str(settings.get(name, "none"))[:200]


def _without_free(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in MAY_CHANGE}


def _complete(cls: type, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `settings` of an older version, completed as `toml.from_run` does."""
    values, problems = toml.read_tree(cls, settings)
    if problems:
        return settings
    values = {**getattr(cls, "BEFORE", {}), **values}
    return toml.tree_of(schema.build(cls, schema.nested(values)))
