"""Files of `adapters.sb3`: open in plain Stable-Baselines3, and the other way round."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from support.sb3 import CHOICES, NUMBERS, Toy, weights

from loopless.adapters import sb3

SMALL = {
    "DQN": {"buffer_size": 50, "learning_starts": 1000},
    "PPO": {"n_steps": 8, "batch_size": 8, "n_epochs": 1},
}
# A process in which loopless cannot be imported loads a model, learns on, and predicts.
PLAIN = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "loopless":
            raise ModuleNotFoundError("loopless is not installed here")
sys.meta_path.insert(0, Blocked())
import numpy as np, stable_baselines3
for path in sys.argv[1:]:
    kind = getattr(stable_baselines3, path.split("/")[-1].split("_")[0])
    if path.endswith(".pkl"):
        model = kind("MlpPolicy", "CartPole-v1", buffer_size=50)
        model.load_replay_buffer(path)
        print(type(model.replay_buffer).__module__, model.replay_buffer.size())
        continue
    model = kind.load(path, device="cpu")
    action, _ = model.predict(np.ones(3, "f"), deterministic=True)
    print(type(model).__module__, model.num_timesteps, action)
assert "loopless" not in sys.modules
"""


def make(name, module=sb3, **options):
    env = make_vec_env(lambda: Toy(NUMBERS, CHOICES), n_envs=1)
    return getattr(module, name)("MlpPolicy", env, device="cpu", seed=0, **SMALL[name], **options)


def learned(name, **options):
    model = make(name, **options)
    model._compiled.refusal = "compiling costs time, and files do not depend on it"
    return model.learn(16)


@pytest.mark.slow
def test_files_open_where_loopless_cannot_be_imported(tmp_path):
    prioritized = {"replay_buffer_class": sb3.PrioritizedReplayBuffer}
    prioritized["replay_buffer_kwargs"] = {"alpha": 0.7}
    models = {
        "DQN_plain.zip": learned("DQN"),
        "DQN_prioritized.zip": learned("DQN", **prioritized),
        "PPO_plain.zip": learned("PPO"),
    }
    for name, model in models.items():
        model.save(tmp_path / name)
    models["DQN_plain.zip"].save_replay_buffer(tmp_path / "DQN_buffer.pkl")
    paths = [str(tmp_path / name) for name in models]
    paths.append(str(tmp_path / "DQN_buffer.pkl"))
    command = [sys.executable, "-c", PLAIN, *paths]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    *lines, last = result.stdout.strip().split("\n")
    for line, model in zip(lines, models.values(), strict=True):
        action = model.predict(np.ones(3, np.float32), deterministic=True)[0]
        assert line.split()[1:] == ["16", str(action)]
        assert line.startswith("stable_baselines3")
    assert last == "stable_baselines3.common.buffers 16"


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_a_model_goes_both_ways(name, tmp_path):
    model = learned(name)
    model.save(tmp_path / "ours")
    plain = getattr(stable_baselines3, name).load(tmp_path / "ours", device="cpu")
    plain.save(tmp_path / "theirs")
    for path in ("ours", "theirs"):
        again = getattr(sb3, name).load(tmp_path / path, env=model.get_env(), device="cpu")
        assert type(again) is getattr(sb3, name)
        assert again.num_timesteps == 16
        assert again._compiled.refusal is None  # it is no part of the file
        for key, value in weights(model).items():
            np.testing.assert_array_equal(weights(again)[key], value)
        buffer = again.replay_buffer if name == "DQN" else again.rollout_buffer
        assert type(buffer).__module__ == "loopless.adapters.sb3.buffers"
        again._compiled.refusal = "compiling costs time"
        again.learn(16, reset_num_timesteps=False)
        assert again.num_timesteps == 32
    with zipfile.ZipFile(tmp_path / "ours.zip") as archive:
        assert b"loopless" not in archive.read("data")


def test_a_prioritized_buffer_comes_back(tmp_path):
    options = {"alpha": 0.7, "beta": 0.2}
    chosen = {"replay_buffer_class": sb3.PrioritizedReplayBuffer, "replay_buffer_kwargs": options}
    model = make("DQN", **chosen)
    model.save(tmp_path / "model")
    for _ in range(2):
        model = sb3.DQN.load(tmp_path / "model", device="cpu")
        buffer = model.replay_buffer
        assert type(buffer) is sb3.PrioritizedReplayBuffer
        assert (buffer.priorities.alpha, buffer.beta) == (0.7, 0.2)
        model.save(tmp_path / "model")
    with pytest.raises(TypeError, match="without the buffer"):
        model.save_replay_buffer(tmp_path / "buffer")
    with pytest.raises(TypeError, match="cannot be loaded"):
        model.load_replay_buffer(tmp_path / "buffer")


def test_a_replay_buffer_goes_both_ways(tmp_path):
    model = learned("DQN")
    model.save_replay_buffer(tmp_path / "ours")
    plain = make("DQN", stable_baselines3)
    plain.load_replay_buffer(tmp_path / "ours")
    assert type(plain.replay_buffer) is stable_baselines3.common.buffers.ReplayBuffer
    plain.save_replay_buffer(tmp_path / "theirs")
    again = make("DQN")
    again.load_replay_buffer(tmp_path / "theirs")
    assert type(again.replay_buffer) is sb3.ReplayBuffer
    np.testing.assert_array_equal(
        again.replay_buffer.observations, model.replay_buffer.observations
    )
    assert again.replay_buffer.pos == model.replay_buffer.pos == 16


def rewrite(path, name, text):
    """Change one entry of a zip file."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    entries[name] = text(entries[name])
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)


def test_a_file_of_another_version_says_so(tmp_path):
    path = tmp_path / "model.zip"
    make("PPO").save(path)
    rewrite(path, "_stable_baselines3_version", lambda _: b"1.8.0")
    with pytest.warns(UserWarning, match=r"Stable-Baselines3 1\.8\.0 has written this file"):
        sb3.PPO.load(path, device="cpu")
    with pytest.warns(UserWarning, match=r"1\.8\.0"):
        sb3.PPO.load(str(path).removesuffix(".zip"), device="cpu")
    with pytest.warns(UserWarning, match=r"1\.8\.0"):
        sb3.PPO.load(io.BytesIO(path.read_bytes()), device="cpu")


def test_settings_of_another_version_say_so(tmp_path):
    path = tmp_path / "model.zip"
    make("DQN", replay_buffer_class=sb3.PrioritizedReplayBuffer).save(path)
    rewrite(path, "data", lambda data: data.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(ValueError, match="describes its replay buffer in version 2"):
        sb3.DQN.load(path, device="cpu")
    assert stable_baselines3.DQN.load(path, device="cpu")


@pytest.mark.parametrize("content", [b"", b"no zip"])
def test_what_is_no_file_of_a_model_fails_as_in_the_parent(content, tmp_path):
    path = tmp_path / "model.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="wasn't a zip-file"):
        sb3.PPO.load(path)
    with pytest.raises(FileNotFoundError):
        sb3.PPO.load(tmp_path / "nothing")


def test_a_model_can_be_copied_after_its_first_update():
    import copy

    model = make("PPO").learn(8)
    assert model._compiled.step is not None
    twin = copy.deepcopy(model._compiled)
    assert twin.step is None
    assert torch.equal(*(m.value_net.bias for m in (model.policy, copy.deepcopy(model.policy))))
