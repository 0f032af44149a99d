"""One buffer in several threads, and after a fork."""

import os
import threading

import numpy as np
import pytest

from loopless.replay import (
    EpisodicReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
    locks,
)

WIDTH, THREADS, CALLS = 512, 8, 300
FIELDS = {"obs": ((WIDTH,), np.int64), "number": ((), np.int64)}


def transitions(number, count=4):
    numbers = number + np.arange(count)
    return {"obs": np.repeat(numbers[:, None], WIDTH, 1), "number": numbers}


def is_whole(batch):
    return (batch["obs"] == batch["number"][..., None]).all()


def ring(kind):
    buffer = kind(64, FIELDS)
    buffer.add(**transitions(0, 64))

    def work(thread):
        for call in range(CALLS):
            if thread % 2:
                buffer.add(**transitions(1000 * thread + call))
            else:
                batch = buffer.sample(32)
                yield is_whole(batch)
                if kind is PrioritizedReplayBuffer:
                    buffer.update_priorities(batch["indices"], np.ones(32))

    return work


def episodic():
    buffer = EpisodicReplayBuffer(64, FIELDS, terminals="none")
    buffer.add_episode(**transitions(0, 16))

    def work(thread):
        for call in range(CALLS):
            if thread % 2:
                buffer.add_episode(**transitions(1000 * thread + call, 16))
            else:
                batch = buffer.sample(32, discount=0.5)
                later = batch["number"] + batch["gap"]
                yield is_whole(batch) and (batch["next_obs"] == later[:, None]).all()

    return work


def rollout():
    buffer = RolloutBuffer(CALLS, THREADS, {"obs": ((8,), np.int64)})

    def work(thread):
        step = {"rewards": 0.0, "values": 0.0, "terminated": False, "truncated": False}
        for call in range(CALLS):
            buffer.add(env=thread, obs=np.full(8, call), **step)
        yield (buffer.lengths[thread], buffer["obs"][CALLS - 1, thread, 0]) == (CALLS, CALLS - 1)

    return work


MAKERS = {
    "ring": lambda: ring(ReplayBuffer),
    "prioritized": lambda: ring(PrioritizedReplayBuffer),
    "episodic": episodic,
    "rollout": rollout,
}


@pytest.mark.slow
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_eight_threads_share_a_buffer_and_every_batch_is_whole(maker):
    work, results, errors = maker(), [], []

    def run(thread):
        try:
            results.extend(work(thread))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(results) >= THREADS
    assert all(results)


@pytest.mark.parametrize("call", ["add", "sample", "state", "update_priorities", "priorities"])
def test_a_call_waits_for_whoever_holds_the_lock(call):
    buffer = PrioritizedReplayBuffer(8, {"number": ((), np.int64)})
    buffer.add(number=np.arange(8))
    calls = {
        "add": lambda: buffer.add(number=1),
        "sample": lambda: buffer.sample(4),
        "state": buffer.state,
        "update_priorities": lambda: buffer.update_priorities([1], [2.0]),
        "priorities": lambda: buffer.priorities,
    }
    thread = threading.Thread(target=calls[call])
    with buffer._lock:
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        calls[call]()  # whoever holds the lock may go on
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")
def test_a_child_has_a_lock_of_its_own():
    buffer = ReplayBuffer(8, {"number": ((), np.int64)})
    buffer.add(number=np.arange(8))
    buffer.sample(4)
    holding, release = threading.Event(), threading.Event()

    def hold():
        with buffer._lock:
            holding.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    child = os.fork()
    if not child:
        os._exit(0 if buffer._lock.acquire(timeout=3) else 1)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert buffer in locks._owners


@pytest.mark.parametrize("size", [2**31, 2**63, 10**30])
def test_a_draw_beyond_an_axis_is_refused(size):
    buffer = EpisodicReplayBuffer(64, FIELDS, terminals="none")
    buffer.add_episode(**transitions(0, 16))
    with pytest.raises(ValueError, match="one call draws fewer than 2³¹ in all its batches"):
        buffer.sample(size, discount=0.5)
    with pytest.raises(ValueError, match="one call draws fewer than 2³¹ in all its batches"):
        buffer.sample(16, batches=size, discount=0.5)
