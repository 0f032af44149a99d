"""The child side of `workers.py`: steps its share of the environments until its socket closes.

Interrupts and terminations are its parent's to handle, so it ignores them; when the parent is
gone, however it went, so is the socket. It prints nothing: what goes wrong in an environment is
told to the parent. Imports Gymnasium and NumPy. Tests: `tests/envs/test_workers.py`.
"""

import json
import signal
import traceback
from multiprocessing.connection import Connection

from loopless.envs.hosted.ids import Recipe
from loopless.envs.hosted.loops import EnvLoop
from loopless.envs.hosted.shared import DONE, MASKED, RESET, shared_block


class Share:
    """The environments of one worker, and its columns of the shared block."""

    def __init__(self, order: dict) -> None:
        first, last = order["first"], order["last"]
        self.loop = EnvLoop(Recipe.from_json(order["recipe"]), last - first)
        spaces = (self.loop.obs_space, self.loop.action_space)
        self.block = shared_block(order["memory"], order["envs"], *spaces)
        for name, array in self.block.arrays().items():
            setattr(self.block, name, array[:, first:last])

    def obey(self, message: bytes) -> bytes:
        """Reset with the seeds that follow the command, or take one step; the answer."""
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


def main(handle: int) -> None:
    """Serve the parent at the other end of the socket `handle`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection, share = Connection(handle), None
    while (message := _received(connection)) is not None:
        try:
            if share is None:
                share, answer = Share(json.loads(message)), DONE
            else:
                answer = share.obey(message)
        except Exception:
            answer = traceback.format_exc().encode()
        try:
            connection.send_bytes(answer)
        except OSError:
            break
    if share is not None:
        share.loop.close()


def _received(connection: Connection) -> bytes | None:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError):
        return None
