"""The settings of a run: a dataclass, read from a TOML file and from the command line.

`schema` knows the types of settings, `flags` reads the command line, `toml` reads and writes files
and puts both together, `changes` compares a config with the one that a checkpoint was saved with.
"""

from loopless.runs.config.toml import from_run, from_toml, from_values, resolve, to_toml

__all__ = ["from_run", "from_toml", "from_values", "resolve", "to_toml"]
