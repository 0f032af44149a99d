"""The example notebook runs, and progress in a notebook is one display that changes."""

import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from loopless.runs.progress import display
from loopless.runs.progress.clock import Clock

NOTEBOOK = Path(__file__).parents[2] / "examples" / "train_in_a_notebook.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_its_agent_solves_the_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    scope = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    assert scope["evaluation"].mean > -6  # going left costs 20


class Cells(ModuleType):
    """What a notebook shows, in place of `IPython.display`."""

    def __init__(self):
        super().__init__("IPython.display")
        self.shown, self.updates = [], []

    def display(self, data, raw, display_id):
        self.shown.append(data)
        return SimpleNamespace(update=lambda data, raw: self.updates.append(data))


def notebook(monkeypatch, shell):
    cells = Cells()
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", cells)
    return cells


def test_progress_in_a_notebook_is_one_display_that_changes(monkeypatch, capsys):
    cells = notebook(monkeypatch, SimpleNamespace(kernel=1))
    with display.Progress(clock := Clock(), total=100, name="mine") as progress:
        clock.tick(40)
        progress.update({"return_mean": 12.5})
        deadline = time.monotonic() + 10
        while len(cells.updates) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(cells.shown) == 1
    last = cells.updates[-1]["text/plain"]
    assert "mine" in last
    assert "40%" in last
    assert "12.5" in last
    assert "mine: done" in capsys.readouterr().err


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch, capsys):
    cells = notebook(monkeypatch, SimpleNamespace())
    with display.Progress(Clock(), total=100, name="mine"):
        pass
    assert cells.shown == []
    assert "mine: done" in capsys.readouterr().err
