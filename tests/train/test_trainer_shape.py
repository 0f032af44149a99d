"""Trainers stay easy to read: few files, a short algorithm, composition instead of inheritance."""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from loopless import train
from loopless.train.registry import TRAINERS

FOLDER = Path(train.__file__).parent


def ours(cls):
    return [base for base in cls.__bases__ if base.__module__.startswith("loopless.")]


def test_no_class_has_a_grandparent_of_ours():
    modules = [import_module(m.name) for m in walk_packages(train.__path__, "loopless.train.")]
    classes = {x for m in modules for x in vars(m).values() if isinstance(x, type)}
    assert len(classes) > 50
    grandchildren = [cls for cls in classes for parent in ours(cls) if ours(parent)]
    assert not [x for x in grandchildren if x.__module__.startswith("loopless.train.")]


def test_a_grandparent_would_be_seen():
    parent = type("Parent", (train.engine.run.Run,), {"__module__": "loopless.x"})
    child = type("Child", (parent,), {})
    assert [base for base in ours(child) if ours(base)] == [parent]


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_is_at_most_five_files_and_its_algorithm_two_hundred_and_fifty_lines(name):
    files = [path.name for path in (FOLDER / name).glob("*.py") if path.name != "__init__.py"]
    assert {"config.py", "algorithm.py"} <= set(files)
    assert len(files) <= 5, files
    assert len((FOLDER / name / "algorithm.py").read_text().splitlines()) <= 250
