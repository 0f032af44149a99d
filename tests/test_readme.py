"""The README's example runs, and its tables are those of the committed JSON."""

import re
from pathlib import Path

from loopless import reference
from loopless.bench.readme import update

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_tables_are_those_of_the_committed_results():
    assert update(README, ROOT / "benchmarks" / "results") == README


def test_a_changed_number_is_noticed():
    changed = re.sub(r"(\| loopless, NumPy \| )[\d.]+", r"\g<1>0.01", README)
    assert changed != README
    assert update(changed, ROOT / "benchmarks" / "results") != changed


def test_the_example_runs_and_is_right():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict = {}
    exec(code, names)
    rewards, values, next_values = (names[k] for k in ("rewards", "values", "next_values"))
    expected, _ = reference.gae(
        rewards, values[:-1], next_values, *names["ends"], gamma=0.99, lambda_=0.95
    )
    assert abs(names["advantages"].numpy() - expected).max() < 1e-4
    assert len(code.split("\n\n")) <= 3


def test_both_commands_are_shown():
    assert "make demo" in README
    assert "make test" in README
