"""Fixtures of the tests that make whole runs."""

import os
import shutil

import pytest
from run_results import TINY, command, flags

from loopless.runs import session
from loopless.runs.pictures import renderer
from loopless.runs.pictures.renderer import Renderer


class NoRenderer:
    """In the renderer's place: counts the requests, and starts no process."""

    made = []  # noqa: RUF012

    def __init__(self, folder, **options):
        self.requests, self.closed = 0, False
        self.made.append(self)

    def request(self, *pictures, **options):
        self.requests += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True


@pytest.fixture(scope="module")
def no_renderer():
    """Runs of this module draw nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Renderer", NoRenderer)
        yield NoRenderer


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run that was trained by the command, pictures and all. Nobody changes it."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Renderer", Renderer)
        patch.setattr(renderer, "LAST_DRAWING_S", 120.0)  # tests share the cores
        patch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
        assert command("train", "dqn", *flags(TINY, runs=root, run="mine")) == 0
    return root / "mine"


@pytest.fixture
def copied(run, tmp_path):
    """A copy to do things to."""
    return shutil.copytree(run, tmp_path / "copy")


@pytest.fixture
def commands(monkeypatch):
    """Commands set variables for JAX in their process: here they are put back. None draws."""
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    monkeypatch.setattr(session, "Renderer", NoRenderer)
