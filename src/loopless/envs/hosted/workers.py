"""Environments stepped by worker processes that share a block's memory with this one.

Each worker runs an `EnvLoop` over its share, so that what comes out is what one process would
give. Actions, observations, rewards and ends pass through shared memory; a word each way says
"step" and "done". Workers are fresh interpreters (forking a process that runs JAX may deadlock
it) in a session of their own, so that Ctrl-C reaches this process alone, which decides; a worker
ends when its socket closes. POSIX only. Imports NumPy. Child side: `worker.py`.
Tests: `tests/envs/test_workers.py`.
"""

import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from loopless.envs.hosted.blocks import Block
from loopless.envs.hosted.ids import Recipe
from loopless.envs.hosted.loops import EnvLoop
from loopless.envs.hosted.shared import DONE, MASKED, RESET, STEP, anonymous_memory, shared_block
from loopless.envs.refusals import EnvError
from loopless.process import cores

PATIENCE_S = 5.0  # how long a worker may take to close its environments
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from loopless.envs.hosted.worker import main; main(int(sys.argv[1]))"
)


class Workers:
    """`envs` environments of one recipe in `workers` processes; a step writes a row of a block."""

    gives_final_obs = True

    def __init__(self, recipe: Recipe, envs: int, workers: int | None = None) -> None:
        if os.name != "posix":
            raise EnvError("envs: vectorization='async' needs Linux or macOS; use 'sync'.")
        probe = EnvLoop(recipe, 1)  # says what it looks like, and fails here rather than there
        self.obs_space, self.action_space = probe.obs_space, probe.action_space
        self.max_steps = probe.max_steps
        probe.close()
        self._name, self._masked = recipe.env_id, False
        count = min(envs, workers or cores())
        self._shares = list(pairwise(envs * k // count for k in range(count + 1)))
        self._sockets: list[Connection] = []
        self._processes: list[subprocess.Popen] = []
        self._stop = weakref.finalize(self, _stop, self._sockets, self._processes)
        spaces = (self.obs_space, self.action_space)
        with anonymous_memory(envs, *spaces) as memory:
            self._shared = shared_block(memory, envs, *spaces)
            order = {"recipe": recipe.to_json(), "memory": memory, "envs": envs}
            for _ in self._shares:
                self._start(memory)
            self._ask(
                json.dumps(order | {"first": first, "last": last}).encode()
                for first, last in self._shares
            )

    def reset(self, seeds: Sequence[int], obs: np.ndarray) -> np.ndarray | None:
        """Start all episodes anew, and write the observations [envs, ...]; gives masks, if any."""
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
        """Step t: reads its actions, and writes rewards, ends and what to act on next."""
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
        """A worker keeps its frames to itself."""
        raise EnvError("envs: frames are rendered with vectorization='sync' only.")

    def close(self) -> None:
        self._stop()

    def _start(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self._sockets.append(Connection(ours.detach()))
        with theirs:
            handle = theirs.fileno()
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(handle), json.dumps(list(map(str, sys.path)))],
                pass_fds=(handle, memory),
                env={"OMP_NUM_THREADS": "1"} | dict(os.environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._processes.append(process)

    def _ask(self, messages) -> list[bytes]:
        """Say something to every worker, and wait until all have done it and answered."""
        answers, errors, k = [], [], 0
        try:
            for k, message in enumerate(messages):
                self._sockets[k].send_bytes(message)
            for k, connection in enumerate(self._sockets):
                answers.append(connection.recv_bytes())
                if answers[-1] not in (DONE, MASKED):
                    errors.append(f"{self._where(k)}: {answers[-1].decode()}")
        except (EOFError, OSError):
            self.close()
            code = self._processes[k].returncode
            errors.append(f"{self._where(k)}: the worker process died (exit code {code}).")
        except BaseException:  # an answer may be under way, and would be taken for the next one
            self.close()
            raise
        if errors:
            self.close()
            raise EnvError("\n".join(errors))
        return answers

    def _where(self, k: int) -> str:
        first, last = self._shares[k]
        return f"envs: {self._name}, environments {first} to {last - 1}"


def _stop(sockets: list[Connection], processes: list[subprocess.Popen]) -> None:
    for connection in sockets:
        connection.close()
    for process in processes:
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
