"""Children of suites: what they run on, what they say when they fail, and what they imported."""

import os

import pytest

from loopless.bench import sources
from suites import processes
from suites.avatarl import suite as avatarl

pytestmark = pytest.mark.slow


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A function that runs code as a module of a child process."""

    def run(code, **options):
        (tmp_path / "some_child.py").write_text(code)
        return processes.run_child("some_child", **options)

    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    return run


def test_a_child_is_timed_on_one_core_with_one_thread(child):
    code = "import os; print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    core = max(os.sched_getaffinity(0))
    environment = processes.one_thread()
    environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    seconds, printed = child(
        f"import time; time.sleep(0.2); {code}", environment=environment, cores={core}
    )
    assert printed == "1 1\n"
    assert seconds > 0.2


def test_a_child_that_fails_gives_its_last_line(child):
    with pytest.raises(RuntimeError, match="exit code 3: last"):
        child("import sys; print('last', file=sys.stderr); sys.exit(3)")


def test_what_a_child_imports_belongs_to_what_was_measured(child):
    with sources.record() as digests:
        before = digests()
        child("import loopless.text.corpus")
        assert set(digests()) - set(before) or "loopless/text/corpus.py" in before
        assert "loopless/text/corpus.py" in digests()


def test_a_probe_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="TypeError"):
        processes.probe(avatarl.in_torch)


def test_the_last_line_of_a_probe_counts(monkeypatch):
    monkeypatch.setattr(processes, "run_child", lambda *_: (1.0, "noise\n12.5\n"))
    assert processes.probe(avatarl.in_torch) == 12.5
