"""Presets: settings that are known to work, by name, and the list of them."""

import pytest

from loopless import cli
from loopless.runs.config import resolve
from loopless.runs.failures import BadConfig
from loopless.train import presets, registry
from loopless.train.dqn.config import DQN


@pytest.mark.parametrize("preset", list(presets.presets()), ids=lambda preset: preset.file.stem)
def test_a_preset_is_a_config_of_its_trainer_and_says_what_it_is(preset):
    cls = registry.config_class(preset.trainer)
    words = ["--preset", preset.name]
    config = resolve(cls, words, "test", lambda name: presets.find(preset.trainer, name))
    assert config.steps > 1
    assert preset.text.endswith(".")
    assert "src/" not in preset.text + preset.reaches


def dqn(*words):
    return resolve(DQN, words, "loopless train dqn", lambda name: presets.find("dqn", name))


def test_a_name_may_be_cut_short_where_that_is_clear():
    assert dqn("--preset", "lunarlander").env == "LunarLander-v3"
    assert dqn("--preset", "cartpole") == dqn("--config", str(presets.find("dqn", "cartpole")))


def test_file_and_flags_win_over_a_preset(tmp_path):
    (tmp_path / "my.toml").write_text("steps = 7_000\nbatch_size = 32\n")
    words = "--batch-size", "16", "--preset", "lunarlander", "--config", str(tmp_path / "my.toml")
    config = dqn(*words)
    assert (config.env, config.steps, config.batch_size) == ("LunarLander-v3", 7_000, 16)


def test_an_unknown_preset_is_named_beside_the_other_mistakes():
    with pytest.raises(BadConfig) as refused:
        dqn("--preset", "lunarlender", "--gama", "1")
    unknown, flag = sorted(refused.value.problems)
    assert "no preset of dqn is called 'lunarlender'. Did you mean lunarlander" in unknown
    assert "unknown flag --gama" in flag


def test_the_list_says_how_to_use_each_and_what_it_reaches(capsys):
    assert cli.main(["presets"]) == 0
    text = capsys.readouterr().out
    assert "loopless train dqn --preset cliffwalking\n" in text
    assert "Reaches 241.1 (mean of 5 seeds from 191 to 265, 100 episodes each)" in text
    assert text.count("--preset") == len(list(presets.presets()))
