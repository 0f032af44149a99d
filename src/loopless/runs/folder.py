"""The folder of a run: created whole or not at all, and locked by the one process that trains.

    with RunFolder.create(Path("runs"), None, "dqn", config) as run: ...    # a new run, locked
    with RunFolder.open(path, lock=True) as run: ...                        # resume
    run = RunFolder.open(path)                                              # play, plot, export

A folder with a `run.json` is a run; this file says what it was made with. The other files are
written by `metrics`, `checkpoint` and `pictures`; `session` brings them together. `open` refuses a
folder with links in it: a run that somebody sent must not touch anything outside itself.
"""

import errno
import fcntl
import json
import os
import platform
import re
import secrets
import socket
import subprocess
import sys
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopless.files import atomic, plain
from loopless.refusals import did_you_mean
from loopless.runs import config as configs
from loopless.runs.config.toml import parse
from loopless.runs.failures import BadConfig, BadRun, Failure, RunInUse, WriteFailed, writing

PACKAGES = ("loopless", "numpy", "jax", "jaxlib", "equinox", "optax", "gymnasium")
FORMAT = 1
FILES = (
    "run.json", "config.toml", "metrics.jsonl", "lock", "latest", "best", "renderer.log",
)  # fmt: skip
FOLDERS = (
    "checkpoints", "plots", "snapshots", "data", "crash", "samples", "tensorboard", "trace",
)  # fmt: skip
LARGEST_JSON = 1 << 20  # bytes of a run.json or config.toml; ours have a few thousand

_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()

NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK)


class Lock:
    """A `flock` on the file `lock`, which the system drops when its process dies, however it dies.

    It is taken when the object is made. The file names its holder for whoever comes second.
    """

    def __init__(self, path: Path):
        self._file = open_in_place(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"pid {os.getpid()} on host {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            holder = os.pread(self._file, 400, 0).decode("utf-8", "replace").strip()
            os.close(self._file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise RunInUse(
                    f"run: {path.parent} is in use by {holder or 'another process'}. Wait until it "
                    f"has ended, or train under another name with --run."
                ) from None
            why = " Its file system has no locks (flock)." if error.errno in NO_LOCKS else ""
            raise WriteFailed(
                f"run: cannot lock {path}: {error.strerror}.{why} Put the run on another disk."
            ) from error
        _locks.add(self)

    def release(self) -> None:
        """Let other processes take the lock; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _release_in_child() -> None:
    """Close the locks in a forked worker: the parent keeps them, and no orphan holds them."""
    for lock in list(_locks):
        with suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_release_in_child)


def open_in_place(path: Path, flags: int = 0) -> int:
    """Return a descriptor of a file in a run that is written in place, such as its log."""
    try:
        return plain.open_to_append(path, flags)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise BadRun(f"run: cannot write {path}: {error.strerror}.") from None
        with writing(str(path)):
            raise


class RunFolder:
    """The folder of one run. `create` makes a new one, `open` finds one that exists."""

    def __init__(self, path: Path, facts: dict[str, Any], lock: Lock | None):
        self.path, self.facts, self._lock = path, facts, lock
        self.name: str = path.resolve().name
        self.trainer: str = facts["trainer"]
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.plots = path / "plots"
        self.config_file = path / "config.toml"

    @classmethod
    def create(cls, root: Path, name: str | None, trainer: str, config: Any) -> "RunFolder":
        """Create and lock a run. The default name is trainer, environment and a free number."""
        root = Path(root)
        if name is not None and (problem := _bad_name(name)):
            raise BadConfig([problem])
        _make_root(root)
        _sweep(root)
        facts = {"format": FORMAT, "trainer": trainer} | _describe_origin()
        staged = root / f".{secrets.token_hex(8)}{atomic.STAGED}"
        with writing(f"a run into {root}"):
            os.mkdir(staged)
        lock = None
        try:
            lock = Lock(staged / "lock")
            with writing(f"a run into {root}"):
                _fill(staged, facts, trainer, config)
                return cls(_publish(staged, root, name, _stem(trainer, config)), facts, lock)
        except BaseException:
            if lock:
                lock.release()
            with suppress(OSError):
                atomic.remove(staged)
            raise

    @classmethod
    def open(cls, path: Path, lock: bool = False) -> "RunFolder":
        """Open a run. With `lock`, to train, also tidy up after a process that died."""
        path = Path(path)
        if not path.is_dir():
            raise BadRun(f"run: there is no run {path}.{_nearest(path)}")
        if problems := plain.problems(path, FILES, FOLDERS):
            raise BadRun(
                f"run: {'; '.join(problems)}. A run holds nothing but files and folders of its "
                f"own; put a copy in the place of what is not. Nothing was touched."
            )
        facts = _read_facts(path)
        taken = Lock(path / "lock") if lock else None
        run = cls(path, facts, taken)
        if taken:
            try:
                with writing(f"into {path}"):
                    plain.make_folder(run.checkpoints)
                    atomic.recover(path.resolve())
                    atomic.recover(run.checkpoints)
            except BaseException:
                taken.release()
                raise
        return run

    def config(self, cls: type) -> Any:
        """Return the run's config as an instance of the trainer's config class."""
        text = _read_small(self.config_file, "config.toml")
        return configs.from_run(cls, text, source=str(self.config_file))

    def change_config(self, config: Any) -> None:
        """Replace the config of the run."""
        with writing(str(self.config_file), kept="The old config is kept"):
            atomic.write_file(self.config_file, _config_file(self.trainer, config))

    def close(self) -> None:
        """Let other processes train this run."""
        if self._lock:
            self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stem(trainer: str, config: Any) -> str:
    words = "-".join(filter(None, (trainer, str(getattr(config, "env", None) or ""))))
    return re.sub(r"[^\w.+-]+", "-", words)[:80].strip("-.")


def _bad_name(name: str) -> str | None:
    whole = name.isprintable() and "/" not in name and "\\" not in name and len(name) <= 120
    if name and whole and not name.startswith((".", "-")):
        return None
    return f'"{name}" cannot be the name of a run: give one word, without "/" and without "." first'


def _make_root(root: Path) -> None:
    """Create the folder of all runs, if its parent exists."""
    try:
        root.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise BadConfig([f"there is no folder {root.parent} for the runs. Create it."]) from None
    except (FileExistsError, NotADirectoryError):
        raise BadConfig([f"{root} is a file; runs need a folder."]) from None
    except OSError as error:
        with writing(f"a run into {root}"):
            raise error


def _sweep(root: Path) -> None:
    """Remove what dead processes left of unfinished runs; a living one still holds its lock."""
    for lock in root.glob(f".*{atomic.STAGED}/lock"):
        if lock.parent.is_symlink():
            continue
        with suppress(OSError, Failure):
            taken = Lock(lock)
            atomic.remove(lock.parent)
            taken.release()


def _fill(staged: Path, facts: dict[str, Any], trainer: str, config: Any) -> None:
    about = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    files = {
        "config.toml": _config_file(trainer, config),
        "metrics.jsonl": b"",
        "run.json": about.encode("utf-8", "replace"),
    }
    for name, data in files.items():
        atomic.create_file(staged / name, lambda file, data=data: atomic.write_all(file, data))
    for name in ("checkpoints", "plots"):
        os.mkdir(staged / name)
    atomic.synchronize(staged)


def _config_file(trainer: str, config: Any) -> bytes:
    header = f"`loopless train {trainer} --config` this file trains the same again."
    return configs.to_toml(config, header).encode("utf-8", "replace")


def _publish(staged: Path, root: Path, name: str | None, stem: str) -> Path:
    """Rename to `name`, or without one to `stem` and the next free number; return the new path."""
    number = _next_number(root, stem)
    while True:
        path = root / (name or f"{stem}-{number}")
        try:
            # The system refuses to rename onto an existing run: two runs cannot get one name.
            os.rename(staged, path)
            atomic.synchronize(root)
            return path
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if name:
            again = f"Use `loopless resume {path}` to continue it, or another name with --run."
            raise BadConfig([f"{path} exists already. {again}"])
        number += 1


def _next_number(root: Path, stem: str) -> int:
    pattern = re.compile(re.escape(stem) + r"-(\d{1,9})")
    matches = (pattern.fullmatch(name) for name in os.listdir(root))
    return max((int(match[1]) + 1 for match in matches if match), default=0)


def _read_facts(path: Path) -> dict[str, Any]:
    text = _read_small(path / "run.json", "run.json")
    try:
        facts = json.loads(text)
        version, trainer = facts["format"], facts["trainer"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadRun(
            f"run: {path / 'run.json'} is broken ({type(error).__name__}: {error}). Restore it "
            f"from a copy; config.toml and the checkpoints beside it are not touched."
        ) from None
    if type(version) is not int or not isinstance(trainer, str):
        raise BadRun(
            f"run: {path / 'run.json'} is broken: format {version!r}, trainer {trainer!r}."
        )
    if version > FORMAT:
        raise BadRun(
            f"run: {path} was made by a newer loopless (format {version}; this one reads up to "
            f"{FORMAT}). Upgrade loopless."
        )
    return facts


def _read_small(path: Path, name: str) -> str:
    try:
        return atomic.read_small(path, LARGEST_JSON, follow=False).decode()
    except FileNotFoundError:
        raise BadRun(f"run: {path.parent} is not a run: it has no {name}.") from None
    except UnicodeDecodeError:
        raise BadRun(f"run: {path} is broken: it is not text in UTF-8.") from None
    except OSError as error:
        raise BadRun(f"run: cannot read {path}: {error.strerror}.") from None


def read_config(folder: Path) -> dict[str, Any]:
    """Return the tree in a run's config.toml, whatever its trainer; OSError or ValueError if none.

    For pages and pictures, which only show it.
    """
    return parse(atomic.read_small(folder / "config.toml", LARGEST_JSON, follow=False).decode())


def _nearest(path: Path) -> str:
    with suppress(OSError):
        files = sorted(path.parent.glob("*/run.json"), key=lambda file: -file.stat().st_mtime)
        others = [file.parent.name for file in files]
        if hint := did_you_mean(path.name, others, lambda name: str(path.with_name(name))):
            return hint
        if others:
            return f" The newest are: {', '.join(others[:5])}."
    return ""


def _describe_origin() -> dict[str, Any]:
    """Return what a run is made with: versions, commit, command line. Imports no package."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["loopless", *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of this file, with "+" if the tree has changed since; None if unknown."""
    try:
        # An installed copy may lie inside another repository: only a tracked file counts.
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=20
    )
    return done.stdout.strip()
