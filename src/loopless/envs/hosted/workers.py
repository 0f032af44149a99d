"""Environments stepped by worker processes that share a block's memory with this one.

Each worker runs an `EnvLoop` over its share of the environments, so the result is the same as from
one process. Actions, observations, rewards and ends pass through shared memory, which has no name,
so that nothing is left behind however processes end. A word each way says "step" and "done".

Workers are fresh interpreters, because forking a process that runs JAX may deadlock it. They run in
a session of their own, so that Ctrl-C reaches this process alone, which decides; a worker ends when
its socket closes, even if its environment hangs (`hangs.py`). POSIX only. `serve`, at the end of
this file, is what runs in a worker.
"""

import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import traceback
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from loopless.envs import EnvError, EnvFault
from loopless.envs.hosted import hangs
from loopless.envs.hosted.blocks import Block, layout
from loopless.envs.hosted.ids import Recipe
from loopless.envs.hosted.loops import EnvLoop
from loopless.envs.spaces import Box, Space, mask_width
from loopless.process import cores

PATIENCE_S = 5.0  # how long a worker may take to close its environments
RESET, STEP = b"reset ", b"step"
DONE, MASKED = b"done", b"masked"  # the answer to a reset says whether there are masks
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from loopless.envs.hosted.workers import serve; serve(*map(int, sys.argv[1].split()))"
)


class Workers:
    """`envs` environments of one recipe in `workers` processes; a step writes a row of a block.

    An environment that takes longer than `step_timeout` seconds for a step ends all of them.
    """

    gives_final_obs = True

    def __init__(
        self,
        recipe: Recipe,
        envs: int,
        workers: int | None = None,
        step_timeout: float | None = None,
    ) -> None:
        if os.name != "posix":
            raise EnvError("envs: vectorization='async' needs Linux or macOS; use 'sync'.")
        probe = EnvLoop(recipe, 1)  # tells the spaces, and fails here rather than in a worker
        self.obs_space, self.action_space = probe.obs_space, probe.action_space
        self.flattened = probe.flattened
        self.max_steps = probe.max_steps
        probe.close()

        self._name, self._masked = recipe.env_id, False
        count = min(envs, workers or cores())
        self._shares = list(pairwise(envs * k // count for k in range(count + 1)))
        self._sockets: list[Connection] = []
        self._processes: list[subprocess.Popen] = []
        self._lifelines: list[int] = []  # pipes that close with this process, however it ends
        self._step_timeout = step_timeout
        self._stop = weakref.finalize(
            self, _stop, self._sockets, self._processes, self._lifelines, os.getpid()
        )
        spaces = (self.obs_space, self.action_space)
        with _anonymous_memory(envs, *spaces) as memory:
            self._shared = _shared_block(memory, envs, *spaces)
            order = {"recipe": recipe.to_json(), "memory": memory, "envs": envs}
            order["step_timeout"] = step_timeout
            for _ in self._shares:
                self._start(memory)
            self._ask(
                json.dumps(order | {"first": first, "last": last}).encode()
                for first, last in self._shares
            )

    def reset(self, seeds: Sequence[int], obs: np.ndarray) -> np.ndarray | None:
        """Start all episodes anew, write the observations [envs, ...], and return masks, if any."""
        seeds = list(map(int, seeds))
        answers = self._ask(
            RESET + json.dumps(seeds[first:last]).encode() for first, last in self._shares
        )
        obs[...] = self._shared.last_obs
        self._masked = MASKED in answers
        if self._masked and DONE in answers:
            self.close()
            raise EnvError(f"envs: {self._name}: some environments have action masks, some none.")
        return self._shared.last_mask if self._masked else None

    def step(self, t: int, block: Block) -> None:
        """Take step t: read its actions, and write rewards, ends and what to act on next."""
        shared = self._shared
        shared.action[0] = block.action[t]
        self._ask(STEP for _ in self._shares)
        block.all_obs[t + 1] = shared.last_obs
        block.exact_reward[t] = shared.exact_reward[0]
        if self._masked and block.all_masks is not None:
            block.all_masks[t + 1] = shared.last_mask
        ended = shared.terminated[0] | shared.truncated[0]
        if ended.any():
            block.terminated[t], block.truncated[t] = shared.terminated[0], shared.truncated[0]
            block.next_obs[t][ended] = shared.next_obs[0][ended]

    def render(self) -> list[Any]:
        """Raise EnvError: frames stay in the workers."""
        raise EnvError("envs: frames are rendered with vectorization='sync' only.")

    def close(self) -> None:
        self._stop()

    def _start(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self._sockets.append(Connection(ours.detach()))
        watched, lifeline = os.pipe()
        self._lifelines.append(lifeline)
        with theirs, os.fdopen(watched):
            handles = (theirs.fileno(), watched)
            numbers, path = " ".join(map(str, handles)), json.dumps(list(map(str, sys.path)))
            process = subprocess.Popen(
                [sys.executable, "-c", _START, numbers, path],
                pass_fds=(*handles, memory),
                env={"OMP_NUM_THREADS": "1"} | dict(os.environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._processes.append(process)

    def _ask(self, messages) -> list[bytes]:
        """Send a message to every worker, wait until all have done it, and return the answers."""
        answers, errors, k = [], [], 0
        try:
            for k, message in enumerate(messages):
                self._sockets[k].send_bytes(message)
            for k, connection in enumerate(self._sockets):
                if self._is_overdue(k, connection):
                    self._processes[k].kill()
                    self.close()
                    raise EnvFault(
                        f"{self._where(k)}: no answer within step_timeout={self._step_timeout:g} "
                        f"seconds a step; the worker hangs outside Python and was ended."
                    )
                answers.append(connection.recv_bytes())
                if answers[-1] not in (DONE, MASKED):
                    errors.append(answers[-1].decode())
        except (EOFError, OSError):
            self.close()
            code = self._processes[k].returncode
            errors.append(f"{self._where(k)}: the worker process died (exit code {code}).")
        except BaseException:  # an answer may still come, and would be taken for the next one
            self.close()
            raise
        if errors:
            self.close()
            raise EnvFault("\n".join(errors))
        return answers

    def _is_overdue(self, k: int, connection: Connection) -> bool:
        """Return whether a worker did not answer, though it should have told of a hang itself."""
        if self._step_timeout is None:
            return False
        first, last = self._shares[k]
        return not connection.poll(2 * self._step_timeout * (last - first) + PATIENCE_S)

    def _where(self, k: int) -> str:
        first, last = self._shares[k]
        return f"envs: {self._name}, environments {first} to {last - 1}"


def _stop(
    sockets: list[Connection],
    processes: list[subprocess.Popen],
    lifelines: list[int],
    owner: int,
) -> None:
    for connection in sockets:
        connection.close()
    if os.getpid() != owner:  # a fork: the workers are not its children
        return
    for process in processes:
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    while lifelines:
        os.close(lifelines.pop())


# --- shared memory


@contextmanager
def _anonymous_memory(envs: int, obs: Box, actions: Space) -> Iterator[int]:
    """Yield a file descriptor of memory for a block of one step, to be mapped inside."""
    arrays = layout(1, envs, obs, actions, mask_width(actions)).values()
    sizes = (np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in arrays)
    with _nameless_file() as memory:
        memory.truncate(sum(map(_aligned, sizes)))
        yield memory.fileno()


def _nameless_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("loopless-envs"), "r+b")
    return TemporaryFile()


def _shared_block(memory: int, envs: int, obs: Box, actions: Space) -> Block:
    """Return a block of one step over the file descriptor `memory`, the same in every process.

    It always has room for masks, because nobody knows of any before the first reset.
    """
    mapped, used = mmap.mmap(memory, 0), 0

    def allocate(shape: tuple, dtype: str) -> np.ndarray:
        nonlocal used
        array = np.ndarray(shape, dtype, mapped, used)
        used += _aligned(array.nbytes)
        return array

    return Block(1, envs, obs, actions, allocate, masks=mask_width(actions))


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


# --- in a worker process


class _Share:
    """The environments of one worker, and its columns of the shared block."""

    def __init__(self, order: dict) -> None:
        first, last = order["first"], order["last"]
        self.loop = EnvLoop(
            Recipe.from_json(order["recipe"]), last - first, first, order["step_timeout"]
        )
        spaces = (self.loop.obs_space, self.loop.action_space)
        self.block = _shared_block(order["memory"], order["envs"], *spaces)
        for name, array in self.block.arrays().items():
            setattr(self.block, name, array[:, first:last])

    def obey(self, message: bytes) -> bytes:
        """Reset with the seeds after the command, or take one step; return the answer."""
        if message.startswith(RESET):
            legal = self.loop.reset(json.loads(message[len(RESET) :]), self.block.last_obs)
            if legal is not None and self.block.last_mask is not None:
                self.block.last_mask[...] = legal
                return MASKED
        else:
            self.block.terminated.fill(False)
            self.block.truncated.fill(False)
            self.loop.step(0, self.block)
        return DONE


def serve(handle: int, lifeline: int) -> None:
    """Step a share of the environments until the socket `handle` closes, or the pipe `lifeline`.

    The parent handles interrupts and terminations, so a worker ignores them. It prints nothing:
    errors in an environment are sent to the parent.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hangs.end_with(lifeline)
    connection, share = Connection(handle), None
    while (message := _receive(connection)) is not None:
        try:
            if share is None:
                share, answer = _Share(json.loads(message)), DONE
            else:
                answer = share.obey(message)
        except EnvError as error:
            answer = str(error).encode()
        except Exception:
            answer = traceback.format_exc().encode()
        try:
            connection.send_bytes(answer)
        except OSError:
            break
    if share is not None:
        share.loop.close()


def _receive(connection: Connection) -> bytes | None:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        return None
