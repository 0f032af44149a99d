"""A buffer in a file: all of it comes back, or the error says why, and nothing is half-written."""

import hashlib
import json
import os
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy

from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
from loopless.replay.host.prioritized import PrioritizedReplayBuffer
from loopless.replay.host.uniform import ReplayBuffer

FIELDS = {
    "obs": {"near": ((3,), np.float32), "image": ((20, 20), np.uint8)},
    "phase": ((), np.complex128),
    "reward": ((), np.float64),
    "next_obs": ((), np.int64),
    "terminated": ((), np.bool_),
    "truncated": ((), np.bool_),
}
both = pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])


def filled(kind, count=23, capacity=10, **options):
    buffer = kind(capacity, FIELDS, n_step=2, gamma=0.9, seed=5, **options)
    generator = np.random.default_rng(count)
    for t in range(count):
        image = generator.integers(0, 256, (20, 20)).astype(np.uint8)
        buffer.add(
            obs={"near": np.full(3, t, np.float32), "image": image},
            phase=complex(t, -t),
            reward=float(t),
            next_obs=t + 1,
            terminated=t % 5 == 4,
            truncated=False,
        )
    return buffer


def as_bytes(state):
    return {
        name: (v.dtype.name, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v
        for name, v in state.items()
    }


@both
@pytest.mark.parametrize("count", [0, 4, 10, 23])
def test_a_loaded_buffer_continues_byte_for_byte(kind, count, tmp_path):
    buffer = filled(kind, count)
    if count:
        buffer.sample(3)
    if count and kind is PrioritizedReplayBuffer:
        buffer.update_priorities([0, 2], [5.0, 0.25])
    buffer.save(tmp_path / "buffer.safetensors")
    other = kind.load(tmp_path / "buffer.safetensors")
    assert as_bytes(other.state()) == as_bytes(buffer.state())
    assert repr(other) == repr(buffer)
    if count:
        first, second = buffer.sample(4, 3), other.sample(4, 3)
        assert as_bytes(first.pop("obs")) == as_bytes(second.pop("obs"))
        assert as_bytes(first) == as_bytes(second)
    assert as_bytes(other.state()) == as_bytes(buffer.state())


def test_alpha_and_windows_come_back(tmp_path):
    filled(PrioritizedReplayBuffer, alpha=0.3).save(tmp_path / "b")
    other = PrioritizedReplayBuffer.load(tmp_path / "b")
    assert other.alpha == 0.3
    assert "discount" in other.sample(2)


def test_saving_replaces_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "buffer"
    filled(ReplayBuffer, 3).save(path)
    filled(ReplayBuffer, 7).save(path)
    assert len(ReplayBuffer.load(path)) == 7
    assert os.listdir(tmp_path) == ["buffer"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "buffer"
    filled(ReplayBuffer, 3).save(path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        filled(ReplayBuffer, 7).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["buffer"]


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.3, 0.999])
def test_a_truncated_file_is_refused(kept, tmp_path):
    path = tmp_path / "buffer"
    filled(ReplayBuffer).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ValueError, match="is not a complete buffer file"):
        ReplayBuffer.load(path)


def test_a_flipped_bit_is_found(tmp_path):
    path = tmp_path / "buffer"
    filled(ReplayBuffer).save(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="differ from their checksums"):
        ReplayBuffer.load(path)


def test_a_changed_manifest_is_found(tmp_path):
    path = tmp_path / "buffer"
    filled(ReplayBuffer).save(path)
    data = path.read_bytes()
    assert b'head\\": 3' in data
    path.write_bytes(data.replace(b'head\\": 3', b'head\\": 4'))
    with pytest.raises(ValueError, match="manifest differs from its checksum"):
        ReplayBuffer.load(path)


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        filled(ReplayBuffer).save(tmp_path / "none" / "buffer")


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "weights"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="is not a complete buffer file"):
        ReplayBuffer.load(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ReplayBuffer.load(tmp_path / "none")
    filled(ReplayBuffer).save(path)
    with pytest.raises(ValueError, match="holds a ReplayBuffer of version 1, expected a Prio"):
        PrioritizedReplayBuffer.load(path)


def test_saving_takes_one_copy_of_the_data_and_no_second(tmp_path):
    buffer = ReplayBuffer(1000, {"frame": ((4000,), np.uint8)})
    buffer.add(frame=np.ones((1000, 4000), np.uint8))
    buffer.save(tmp_path / "buffer")
    tracemalloc.start()
    buffer.save(tmp_path / "buffer")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert buffer.nbytes < peak < 1.5 * buffer.nbytes


def forged(path, change):
    """Change the manifest of a buffer's file, and give it the right checksum."""
    with safetensors.safe_open(path, "numpy") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    manifest = json.loads(header["loopless"])
    change(manifest)
    text = json.dumps(manifest)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    safetensors.numpy.save_file(arrays, path, {"loopless": text, "loopless_sha256": sha256})


@pytest.mark.parametrize("value", [2**63 - 1, 2**63, 2**70, -1, 10**30, "x", None, []])
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, EpisodicReplayBuffer])
def test_numbers_that_no_buffer_has_are_refused(kind, value, tmp_path):
    path = tmp_path / "buffer.safetensors"
    if kind is EpisodicReplayBuffer:
        buffer = kind(10, {"obs": ((), np.int64)}, terminals="none")
        buffer.add_episode(obs=np.arange(6))
    else:
        buffer = filled(kind)
    buffer.save(path)
    forged(path, lambda manifest: None)
    assert as_bytes(kind.load(path).state()) == as_bytes(buffer.state())
    names = [name for name, number in buffer.state().items() if not isinstance(number, np.ndarray)]
    if value == 2**63 - 1 and "drawn" in names:
        names.remove("drawn")  # a count of batches, which this one may be
    for name in names:
        buffer.save(path)
        forged(path, lambda manifest, name=name: manifest["numbers"].update({name: value}))
        with pytest.raises((ValueError, TypeError), match=r"\.(load|restore): "):
            kind.load(path)
