"""Programs on disk: what is kept and what is not, and a JAX that does not take them back."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import pytest
from jax._src import compilation_cache

from loopless.arrays import programs
from loopless.files import cache


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A folder of our own in place of the cache that all tests share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.SWITCH, raising=False)
    shared, state = jax.config.jax_compilation_cache_dir, programs._install(None)
    settings = ("jax_enable_compilation_cache", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in settings}
    jax.config.update("jax_compilation_cache_dir", None)
    programs._kept_for.cache_clear()
    yield
    monkeypatch.undo()
    jax.config.update("jax_compilation_cache_dir", shared)
    for name, value in before.items():
        jax.config.update(name, value)
    programs._kept_for.cache_clear()
    programs._set(state)


def compile_program(number: int, name: str = "mine") -> float:
    """Compile and call a function that is new to JAX, although its text is not."""

    def function(x):
        return jnp.sin(x) * number

    function.__name__ = name
    return float(jax.jit(function)(1.0))


def compile_kept(number: int) -> float:
    with programs.keeping(jax.devices()[0]):
        return compile_program(number)


def stored(name: str) -> int:
    return sum(name in entry.path.name for entry in cache.entries(cache.root()))


@pytest.fixture
def events():
    names: list[str] = []

    def listen(name, **_):
        names.append(name.rpartition("/")[2])

    jax.monitoring.register_event_listener(listen)
    yield names
    jax.monitoring.unregister_event_listener(listen)


def test_only_what_is_compiled_in_the_block_is_kept(events):
    device = jax.devices()[0]
    compile_program(3, "before")
    with programs.keeping(device):
        first = compile_program(3, "ours")
        other = threading.Thread(target=compile_program, args=(3, "beside"))
        other.start()
        other.join()
        with programs.keeping(device):
            compile_program(3, "inner")
    compile_program(3, "after")
    assert [stored(name) for name in ("before", "beside", "after")] == [0, 0, 0]
    assert [stored(name) for name in ("ours", "inner")] == [1, 1]
    assert compilation_cache._cache is None
    events.clear()
    with programs.keeping(device):
        assert compile_program(3, "ours") == first
    assert events.count("cache_hits") == 1


def test_a_cache_of_the_users_is_used_as_it_is(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    programs.keep(True, pytest.fail)
    with programs.keeping(jax.devices()[0]):
        compile_program(4)
    assert not cache.root().exists()


def test_a_damaged_entry_is_compiled_anew_and_replaced(events):
    programs.keep(True, pytest.fail)
    compile_program(5)
    (entry,) = [e for e in cache.entries(cache.root()) if "mine" in e.path.name]
    entry.path.write_bytes(entry.path.read_bytes()[:100])
    events.clear()
    compile_program(5)
    assert "cache_hits" not in events
    assert entry.path.stat().st_size > 1000
    compile_program(5)
    assert events.count("cache_hits") == 1


def test_without_the_cache_nothing_is_kept(monkeypatch):
    monkeypatch.setenv(cache.SWITCH, "0")
    programs.keep(True, pytest.fail)
    compile_program(6)
    monkeypatch.delenv(cache.SWITCH)
    programs.keep(False, pytest.fail)
    compile_program(6)
    assert not cache.root().exists()
    assert not jax.config.jax_enable_compilation_cache


@pytest.mark.parametrize("trouble", ["mode", "link", "no place", "switch", "another JAX"])
def test_a_cache_that_cannot_be_is_said_once_and_work_goes_on(tmp_path, monkeypatch, trouble):
    if trouble == "mode":
        cache.open_folder().chmod(0o755)
    elif trouble == "link":
        cache.root().parent.mkdir()
        cache.root().symlink_to(tmp_path)
    elif trouble == "no place":
        monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    elif trouble == "switch":
        monkeypatch.setenv(cache.SWITCH, "maybe")
    else:
        monkeypatch.setattr(programs, "_STATE", ("_cache", "_a_name_that_is_gone"))
    messages: list[str] = []
    programs.keep(True, messages.append)
    assert compile_program(7) == pytest.approx(7 * 0.8414710)
    assert len(messages) == 1
    assert messages[0].startswith("cache: compiled programs are not kept: ")
    with pytest.warns(RuntimeWarning, match="compiled programs are not kept"):
        compile_kept(7)
    compile_kept(7)


def test_a_folder_that_becomes_read_only_is_said_once(monkeypatch):
    messages: list[str] = []
    programs.keep(True, messages.append)

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache.atomic, "write_file", refuse)
    for number in (8, 9):
        assert compile_program(number) == pytest.approx(number * 0.8414710)
    assert messages == ["cache: new programs are not kept: [Errno 30] Read-only file system"]


class TestAJaxThatRejectsItsEntries:
    """jax#38445, as some versions have it on some processors."""

    @staticmethod
    def reject(*_):
        raise RuntimeError("machine type mismatch")

    @staticmethod
    def complain(*arguments, load=compilation_cache.get_executable_and_time):
        executable = load(*arguments)
        if executable[0] is not None:
            os.write(2, b"E1118 cpu_aot_loader.cc: Target machine feature is not supported\n")
        return executable

    @pytest.mark.parametrize("manner", ["reject", "complain"])
    def test_is_found_out_at_once_said_once_and_remembered(self, manner, monkeypatch, capfd):
        way = getattr(self, manner)
        monkeypatch.setattr(compilation_cache, "get_executable_and_time", way)
        messages: list[str] = []
        programs.keep(True, messages.append)
        assert len(messages) == 1
        assert "does not take back what it stores on this processor. It says: " in messages[0]
        assert compile_program(10) == compile_program(10) == pytest.approx(8.414710)
        assert stored("mine") == 0
        programs.keep(True, pytest.fail)  # as in the next process
        compile_program(10)
        assert capfd.readouterr().err == ""

    def test_of_a_single_entry_is_said_once_and_the_entry_replaced(self, monkeypatch):
        messages: list[str] = []
        programs.keep(True, messages.append)
        compile_program(11)
        with monkeypatch.context() as patch:
            patch.setattr(compilation_cache, "get_executable_and_time", self.reject_after_reading)
            with pytest.warns(UserWarning, match="mismatch"):
                compile_program(11)
        assert len(messages) == 1
        assert "compiled it anew" in messages[0]
        compile_program(11)
        assert len(messages) == 1

    @staticmethod
    def reject_after_reading(key, *_):
        compilation_cache._cache.get(key)
        raise RuntimeError("machine type mismatch")


SCRIPT = """
import sys, jax, jax.numpy as jnp
from loopless.arrays import programs
names = []
jax.monitoring.register_event_listener(lambda name, **_: names.append(name))
programs.keep(True, lambda message: print(message, file=sys.stderr))
names.clear()
for number in range(3):
    print(jax.jit(lambda x: jnp.sin(x @ x) * number)(jnp.ones((4, 4))).sum())
print(*(sum(name.endswith(end) for name in names) for end in ("use_cache", "cache_hits")))
"""


def start_process(script: str, **environment: str) -> subprocess.Popen:
    settings = {"JAX_COMPILATION_CACHE_DIR": "", **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.Popen(command, text=True, env=os.environ | settings, **pipes)


@pytest.mark.slow
def test_a_second_process_hits_and_prints_nothing_though_two_filled_the_cache_at_once():
    filling = [start_process(SCRIPT) for _ in range(2)]
    first = [process.communicate() for process in filling]
    assert [process.returncode for process in filling] == [0, 0], first
    again = start_process(SCRIPT)
    results, errors = again.communicate()
    assert again.returncode == 0, errors
    *numbers, counts = results.splitlines()
    assert all(text.splitlines()[:-1] == numbers for text, _ in first)
    requests, hits = map(int, counts.split())
    assert hits == requests > len(numbers)
    assert [errors for _, errors in first] + [errors] == [""] * 3


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_a_cache_that_works():
    killed = start_process(
        "import os\nos.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "from pathlib import Path\nfrom loopless.files import cache\n"
        "(cache.open_folder() / cache.VERDICT).write_text(cache.ACCEPTED)\n" + SCRIPT
    )
    killed.communicate()
    assert killed.returncode == -9
    assert cache.entries(cache.root()) == []
    after = start_process(SCRIPT)
    _, errors = after.communicate()
    assert (after.returncode, errors) == (0, "")
    assert len(cache.entries(cache.root())) >= 4
