"""The folder of compiled programs: whose it is, what survives damage, what is evicted."""

import os
import threading
from pathlib import Path

import pytest

from loopless.cli import main
from loopless.files import atomic, cache


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(cache.SWITCH, raising=False)


@pytest.fixture
def store() -> cache.Store:
    return cache.Store(cache.open_folder())


def test_the_folder_is_for_this_user_alone():
    folder = cache.open_folder()
    assert folder.parent == cache.root()
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700] * 2
    assert cache.open_folder() == folder


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o720])
@pytest.mark.parametrize("level", ["root", "subfolder"])
def test_a_folder_that_others_can_enter_is_refused(mode, level):
    folder = cache.open_folder()
    (folder if level == "subfolder" else folder.parent).chmod(mode)
    with pytest.raises(cache.NoCache, match=f"has mode {mode:04o}.*chmod 700"):
        cache.open_folder()


def test_a_link_is_refused_and_never_cleared(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "mine").touch()
    cache.root().parent.mkdir()
    cache.root().symlink_to(elsewhere)
    for act in (cache.open_folder, cache.clear):
        with pytest.raises(cache.NoCache, match="is a link"):
            act()
    assert (elsewhere / "mine").exists()


def test_a_folder_of_another_user_is_refused(monkeypatch):
    cache.open_folder()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(cache.NoCache, match="belongs to another user"):
        cache.open_folder()


def test_a_place_where_no_folder_can_be_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(cache.NoCache, match="cannot be used"):
        cache.open_folder()


def test_the_folder_is_named_by_versions_and_processor(monkeypatch):
    names = {cache.folder_name()}
    monkeypatch.setattr(cache, "_processor", lambda: "another one")
    names.add(cache.folder_name())
    monkeypatch.setattr(cache, "_version", lambda package: f"9 of {package}")
    names.add(cache.folder_name())
    assert len(names) == 3


def test_a_relative_home_is_ignored_and_a_wrong_switch_is_refused(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.root().is_relative_to(Path.home())
    assert cache.is_on()
    monkeypatch.setenv(cache.SWITCH, " 0 ")
    assert not cache.is_on()
    monkeypatch.setenv(cache.SWITCH, "no")
    with pytest.raises(cache.NoCache, match="1; received 'no'"):
        cache.is_on()


def test_what_is_put_is_got_and_can_be_replaced(store):
    assert store.get("jit_f-12") is None
    store.put("jit_f-12", b"program")
    assert store.get("jit_f-12") == b"program"
    store.put("jit_f-12", b"another")
    assert cache.Store(store.folder).get("jit_f-12") == b"another"


DAMAGE = {
    "empty": lambda data: b"",
    "a stump of the checksum": lambda data: data[:20],
    "only the checksum": lambda data: data[:32],
    "truncated": lambda data: data[:-1],
    "a bit of the program": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "a bit of the checksum": lambda data: bytes([data[0] ^ 1]) + data[1:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_removed_and_replaced(store, damage):
    store.put("key", bytes(range(200)))
    path = store.path("key")
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert store.get("key") is None
    assert not path.exists()
    store.put("key", bytes(range(200)))
    assert store.get("key") == bytes(range(200))


def test_a_killed_writer_leaves_no_entry_and_its_file_goes_when_it_is_old(store, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    monkeypatch.setattr(os, "replace", kill)
    monkeypatch.setattr(os, "unlink", lambda *_: None)  # a killed process tidies nothing up
    with pytest.raises(Killed):
        store.put("key", b"program")
    monkeypatch.undo()
    (staged,) = store.folder.iterdir()
    staged = staged.rename(staged.with_name(".key.program.1.staged"))  # of another process
    assert store.get("key") is None
    assert cache.entries(store.folder) == []
    store.put("another", b"program")
    assert staged.exists()  # its writer may still be at work
    os.utime(staged, (0, 0))
    store.put("another", b"program")
    assert not staged.exists()
    assert store.get("another") == b"program"


def test_the_least_recently_used_are_evicted_whichever_folder_they_are_in(store):
    other = cache.Store(cache.root() / "of another version")
    other.folder.mkdir(mode=0o700)
    for number, each in enumerate([store, other, store, other]):
        each.cap_bytes = 4 * (100 + 32)
        each.put(f"key {number}", bytes(100))
        os.utime(each.path(f"key {number}"), (number, number))
    assert store.get("key 0") == bytes(100)  # which makes it the latest
    store.put("key 4", bytes(100))
    left = {entry.path for entry in cache.entries(cache.root())}
    assert left == {store.path(k) for k in ("key 0", "key 2", "key 4")} | {other.path("key 3")}


def test_what_is_larger_than_the_cap_is_not_stored(store):
    store.cap_bytes = 100
    store.put("small", bytes(60))
    store.put("large", bytes(80))
    assert store.get("large") is None
    assert store.get("small") == bytes(60)


def test_a_folder_that_cannot_be_written_to_is_still_read(store, monkeypatch):
    store.put("key", b"program")

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(atomic, "write_file", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    store.put("new", b"program")
    assert "Read-only" in str(store.failure)
    assert store.get("key") == b"program"
    assert store.get("new") is None


def test_stores_that_write_and_evict_at_once_give_whole_entries_or_none(store):
    data = {f"key {n}": bytes([n]) * 1000 for n in range(8)}
    problems: list[object] = []

    def work(first: int) -> None:
        mine = cache.Store(store.folder, cap_bytes=4 * 1032)
        for turn in range(40):
            key = f"key {(first * 3 + turn) % 8}"
            if (entry := mine.get(key)) is None:
                mine.put(key, data[key])
            elif entry != data[key]:
                problems.append(key)
        if mine.failure:
            problems.append(mine.failure)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert sum(entry.size for entry in cache.entries(cache.root())) <= 4 * 1032


def test_clearing_removes_everything_and_says_how_much(store):
    store.put("key", bytes(100))
    assert cache.clear() == (1, 132)
    assert not cache.root().exists()
    assert cache.clear() == (0, 0)


def test_the_command_shows_and_clears(store, capsys, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert main(["cache"]) == 0
    assert "0 programs, 0.0 MB" in capsys.readouterr().out
    store.put("key", bytes(2**20))
    (store.folder / cache.VERDICT).write_text("JAX is not willing.")
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert f"Folder    {cache.root()}\nPrograms  1 program, 1.0 MB\nAt most   512 MB" in shown
    assert f"{store.folder.name}: 1 program, 1.0 MB, in use here" in shown
    assert "Not used: JAX is not willing." in shown
    monkeypatch.setenv(cache.SWITCH, "0")
    assert main(["cache", "--clear"]) == 0
    assert "Deleted 1 program, 1.0 MB in" in capsys.readouterr().out
    assert main(["cache"]) == 0
    assert "Off, because LOOPLESS_CACHE is 0." in capsys.readouterr().out


def test_the_command_refuses_a_folder_that_is_not_ours_alone(store, capsys):
    cache.root().chmod(0o777)
    assert main(["cache", "--clear"]) == 2
    assert "has mode 0777" in capsys.readouterr().err
    assert store.folder.exists()
