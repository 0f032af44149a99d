"""The campaigns of `tools/torture`, in a small form; `make torture` runs the large one."""

import errno
import os
from collections import Counter

import numpy as np
import pytest
import torch
from torture import calls, envs, files, power
from torture.failure import Failure
from torture.kernels import KERNELS

import loopless as ll
from loopless.replay import ReplayBuffer
from loopless.runs.failures import WriteFailed, writing
from loopless.runs.folder import Lock

SPARSE, META = torch.eye(3).to_sparse(), torch.eye(3, device="meta")
X, E = np.eye(3), np.zeros((3, 3), bool)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_fuzzed_calls_are_refused_in_our_words_or_equal_the_loop(part, monkeypatch):
    monkeypatch.setattr(calls, "LIBRARIES", ("numpy", "torch"))
    counts = Counter()
    for seed in range(1000 * part, 1000 * (part + 1)):
        counts.update(calls.fuzz(seed))
    assert counts["compared"] > 350
    assert counts["refused"] > 350


@pytest.mark.slow
def test_fuzzed_calls_on_jax_equal_the_loop(monkeypatch):
    monkeypatch.setattr(calls, "LIBRARIES", ("jax",))
    monkeypatch.setattr("torture.kernels.SIZES", ((4, 3),) * 4)
    counts = Counter()
    for seed in range(60):
        counts.update(calls.fuzz(seed))
    assert counts["compared"] > 15


def test_the_fuzzer_notices_an_answer_that_differs_from_the_loop(monkeypatch):
    for kernel in KERNELS:
        monkeypatch.setattr(ll, kernel.name, _slightly_off(getattr(ll, kernel.name)))
    monkeypatch.setattr(calls, "LIBRARIES", ("numpy",))
    noticed = 0
    for seed in range(60):
        try:
            calls.fuzz(seed)
        except Failure:
            noticed += 1
    assert noticed > 10


def _slightly_off(function):
    def call(*args, **options):
        out = function(*args, **options)
        first = out[0] if isinstance(out, tuple) else out
        changed = ~first if np.asarray(first).dtype == bool else first + 1
        return (changed, *out[1:]) if isinstance(out, tuple) else changed

    return call


@pytest.mark.parametrize("tensor", [SPARSE, META], ids=["sparse", "meta"])
@pytest.mark.parametrize(
    "call",
    [
        lambda t: ll.gae(t, t, t, E, E, gamma=0.9, lambda_=0.9),
        lambda t: ll.normalize(t),
        lambda t: ll.affine_scan(t, t),
        lambda t: ll.unlag(t, t[0]),
        lambda t: ll.ppo_loss(t, t, t, t, t, t),
        lambda t: ll.ggdo_loss(t, t, t),
        lambda t: ll.q_loss(t, torch.zeros(3, dtype=torch.int64), torch.zeros(3)),
        lambda t: ll.distillation(t, t),
    ],
)
def test_tensors_without_values_for_all_entries_are_refused(call, tensor):
    with pytest.raises((TypeError, ValueError), match=r"sparse tensor|torch array|is on"):
        call(tensor)


@pytest.mark.parametrize("reverse", [object(), "skip", float("nan"), np.float16(0.5), None, 1])
def test_a_direction_is_true_or_false(reverse):
    with pytest.raises(TypeError, match="affine_scan: reverse must be True or False"):
        ll.affine_scan(X, X, reverse=reverse)


HUGE = 10**400


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ll.normalize(X, min_std=x),
        lambda x: ll.affine_scan(X, X, init=x),
        lambda x: ll.affine_scan(x, X),
        lambda x: ll.allo_loss(X, X, X, X, x),
        lambda x: ll.ggdo_loss(X, X, X, barrier=x),
        lambda x: ll.distillation(X, X, temperature=x),
        lambda x: ll.q_loss(X, np.zeros(3, int), X[0], delta=x),
        lambda x: ll.ppo_loss(X, X, X, X, X, X, clip=x),
        lambda x: ll.policy_gradient_loss(X, X, X, X, X, value_coefficient=x),
    ],
)
def test_an_integer_beyond_all_floats_is_refused(call):
    with pytest.raises(ValueError, match="an integer of 1,329 bits, which no float holds"):
        call(HUGE)


@pytest.mark.parametrize("number", [np.float32(2), np.float16(2), np.int64(2), np.float64(2)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_numpy_scalars_are_numbers_on_every_library(number, library):
    x = X if library == "numpy" else torch.from_numpy(X)
    assert float(ll.allo_loss(x, x, x, x, number)[0]) == float(ll.allo_loss(x, x, x, x, 2.0)[0])
    assert float(ll.ggdo_loss(x, x, x, barrier=number)[0]) == float(ll.ggdo_loss(x, x, x)[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: ll.soft_cross_entropy(X, [[1]], X),
        lambda: ll.avatarl_rewards(X, [[1]], E),
        lambda: ll.cross_entropy(X, None),
        lambda: ll.ggdo_loss(X, None, X),
        lambda: ll.allo_loss(X, None, X, X, 1.0),
    ],
)
def test_what_is_no_array_is_refused_in_the_usual_sentence(call):
    with pytest.raises(TypeError, match="pass a NumPy array, a PyTorch tensor or a JAX array"):
        call()


def cut_sessions(seeds):
    counts = Counter()
    for seed in seeds:
        counts.update(power.fuzz(seed))
    return counts


@pytest.mark.parametrize("session", range(4))
def test_nothing_that_was_reported_as_saved_is_lost_by_a_power_cut(session):
    counts = cut_sessions(range(session, session + 16, 4))
    assert counts["power cuts"] == 4 * power.CUTS


@pytest.mark.parametrize("session", range(3))
def test_the_power_cuts_notice_a_folder_that_is_not_synchronized(session, monkeypatch):
    monkeypatch.setattr("loopless.files.atomic.synchronize", lambda path: None)
    with pytest.raises(Failure, match="after operation"):
        cut_sessions(range(session, session + 40, 4))


def test_the_power_cuts_notice_a_journal_that_is_not_written(monkeypatch):
    monkeypatch.setattr("loopless.replay.storage.memmap.Journal.before_write", lambda *_: None)
    with pytest.raises(Failure, match="not what the last flush left"):
        cut_sessions(range(3, 40, 4))


def test_environments_that_misbehave_are_refused_or_harmless():
    counts = Counter()
    for seed in range(300):
        counts.update(envs.fuzz(seed))
    assert counts["environments refused"] > 200


def test_damaged_files_of_buffers_are_refused():
    for seed in range(60):
        files.fuzz_buffer(seed)


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match=r"cannot lock .*no locks \(flock\)"):
        ReplayBuffer(8, {"x": ((), np.int64)}, storage="memmap", path=tmp_path / "buffer")
    with pytest.raises(WriteFailed, match=r"file system has no locks \(flock\)"):
        Lock(tmp_path / "lock")


def test_a_disk_without_inodes_is_thought_of():
    with pytest.raises(WriteFailed, match=r"df -i"), writing("a file"):
        raise OSError(errno.ENOSPC, "no space")
