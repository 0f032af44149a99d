"""`loopless train lm`, `train avatarl`, `sample`, `export` and `plot` as they are typed."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from lm_cases import SMALL, command, write_text
from run_results import rows

from loopless.nets.gpt.weights import read_gpt2
from loopless.text.tokenizer import load
from loopless.train.commands import load_weights
from loopless.train.lm import sampling
from loopless.train.lm.algorithm import load_model
from loopless.train.lm.run import TextRun

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("commands")]

COMPARED = "critic", "token_trigram", "character_trigram"


def words(**options) -> list[str]:
    given = SMALL | {"tokenizer": "bpe", "vocabulary": 300} | options
    return [
        word for name, value in given.items() if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, request):
    """Runs that `loopless train avatarl` made: of the critic, of a student, of a soft student."""
    root = tmp_path_factory.mktemp("commands")
    text = write_text(root)
    with pytest.MonkeyPatch.context() as patch:
        from conftest import NoRenderer

        from loopless.runs import session

        patch.setattr(session, "Renderer", NoRenderer)
        patch.chdir(root)
        given = words(text=text, critic_steps=8, top_k=2)
        assert command("train", "avatarl", *given, "--run", "hard") == 0
        assert command("train", "avatarl", *given, "--run", "soft", "--loss", "soft") == 0
    return root


def test_a_critic_is_trained_once_for_two_students(folder):
    runs = folder / "runs"
    assert sorted(path.name for path in runs.iterdir()) == ["hard", "lm-0", "soft"]
    for name in ("hard", "soft"):
        assert 'critic = "runs/lm-0"' in (runs / name / "config.toml").read_text()
        assert rows(runs / name)[-1]["critic_loss"] == pytest.approx(
            rows(runs / "lm-0")[-1]["validation_loss"]
        )


def test_a_run_says_what_came_out(folder):
    last = rows(folder / "runs" / "hard")[-1]
    values = {name: f"{last[f'{name}_per_character']:.3f}" for name in ("validation", *COMPARED)}
    assert TextRun.outcome(None, last) == (
        f"Validation cross-entropy {last['validation_loss']:.3f} nats per token (critic "
        f"{last['critic_loss']:.3f}, token trigram {last['token_trigram_loss']:.3f}); "
        f"{values['validation']} nats per character (critic {values['critic']}, token trigram "
        f"{values['token_trigram']}, character trigram {values['character_trigram']})."
    )
    by_tokens = {"validation_loss": 2.0, "token_trigram_loss": 3.0}
    said = "Validation cross-entropy 2.000 nats per token (token trigram 3.000)."
    assert TextRun.outcome(None, by_tokens) == said
    assert TextRun.outcome(None, {"loss": 1.0}) is None


def test_a_run_that_is_done_is_left_alone(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert command("resume", "runs/hard") == 0
    assert "is done, at step 20" in capsys.readouterr().out


def test_text_is_the_same_for_a_seed_and_begins_with_the_prompt(folder, capsys):
    def text(seed: int, prompt: str = "def ") -> str:
        options = ["--tokens", 30, "--seed", seed, "--temperature", 1.5]
        assert command("sample", folder / "runs" / "hard", "--prompt", prompt, *options) == 0
        return capsys.readouterr().out

    first = text(0)
    assert first.startswith("def ")
    assert text(0) == first
    assert text(1) != first
    assert text(0, "") != first


def test_what_follows_a_space_begins_a_word(folder):
    """The prompt's own space is not doubled, and no token before it is glued to what comes."""
    path = folder / "runs" / "hard"
    tokenizer = load(path / "data" / "tokenizer.json")
    ids, space = sampling._encode_prompt(tokenizer, "x = ")
    assert (tokenizer.decode(ids), space) == ("x =", True)
    model = load_model(*load_weights(path, "best", 0)[1:])
    options = sampling.SamplingOptions(1, 1.0, 3, 1.0, 0)
    for seed in range(5):
        (one,) = sampling._choose_after_space(model, tokenizer, ids, jax.random.key(seed), options)
        assert tokenizer.pieces[one].startswith(b" ")
    written = "".join(sampling._generate_text(model, tokenizer, "x = ", options))
    assert written.startswith("x = ")


@pytest.mark.parametrize(("prompt", "kept"), [("x\n", "x\n"), ("", "")])
def test_other_prompts_are_encoded_as_they_are(folder, prompt, kept):
    tokenizer = load(folder / "runs" / "hard" / "data" / "tokenizer.json")
    ids, space = sampling._encode_prompt(tokenizer, prompt)
    assert (tokenizer.decode(ids), space) == (kept, False)
    assert len(ids)


def test_an_export_is_read_as_gpt2_weights(folder, tmp_path, capsys):
    path = folder / "runs" / "soft"
    file = tmp_path / "model.safetensors"
    assert command("export", path, "--output", file) == 0
    card = json.loads(file.with_suffix(".json").read_text())
    assert (card["model_type"], card["n_layer"], card["n_head"]) == ("gpt2", 1, 2)
    found, expected = read_gpt2(file), load_model(*load_weights(path, "best", 0)[1:])
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_students_are_drawn_beside_each_other(folder, tmp_path, capsys):
    target = tmp_path / "both.png"
    runs = [folder / "runs" / name for name in ("hard", "soft", "lm-0")]
    assert command("plot", *runs, "--output", target) == 0
    assert target.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ("lm", {"text": "none.txt"}, "there is no file or folder none.txt"),
        ("lm", {"text": "empty.txt"}, "empty.txt holds no text"),
        ("lm", {"text": "short.txt", "tokenizer": "char", "vocabulary": None}, "are too few for"),
        ("lm", {"text": "zeros.bin"}, "holds a zero byte"),
        ("lm", {"tokens": "ids.bin", "tokenizer": None, "vocabulary": 9}, "token 1 is 11"),
        ("lm", {"tokenizer": "word"}, "--tokenizer must be one of"),
        ("lm", {"size": "7B"}, "received '7B'"),
        ("lm", {"heads": 3}, "a width of 8 does not divide among 3 heads"),
        ("avatarl", {"critic": "runs/none"}, "there is no run runs/none"),
        ("avatarl", {"top_k": 0}, "top_k must be at least 1; received 0"),
        (
            "avatarl",
            {"critic_weight": -1, "label_smoothing": 1},
            "label_smoothing must be in [0, 1)",
        ),
        ("avatarl", {"variant": "best"}, "--variant must be one of"),
    ],
    ids=str,
)
def test_bad_input_is_one_message_with_code_2_and_leaves_nothing(
    trainer, options, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("short.txt").write_text("short")
    Path("zeros.bin").write_bytes(b"\0" * 100)
    np.array([1, 11] * 50, "<u2").tofile("ids.bin")
    write_text(tmp_path)
    before = sorted(tmp_path.iterdir())
    text = None if "tokens" in options or "critic" in options else "text.txt"
    assert command("train", trainer, *words(**{"text": text, **options})) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokens", 0], "tokens must be at least 1; received 0."),
        (["--temperature", -1], "temperature must be at least 0; received -1.0"),
        (["--repetition-penalty", 0], "repetition_penalty must be above 0; received 0.0."),
        (["--checkpoint", "step_5"], "has no checkpoint 'step_5'"),
    ],
    ids=str,
)
def test_a_manner_that_makes_no_sense_is_refused(folder, options, message, capsys):
    assert command("sample", folder / "runs" / "hard", *options) == 2
    assert message in capsys.readouterr().err


def test_a_language_model_plays_nothing(folder, capsys):
    assert command("play", folder / "runs" / "hard") == 2
    assert "plays in no environment" in capsys.readouterr().err


def test_a_critic_that_is_interrupted_is_gone_on_with_by_the_same_command(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    text = write_text(tmp_path)
    from loopless.runs.failures import Interrupted
    from loopless.train import commands

    def stopped(name, config):
        raise Interrupted("run: SIGINT. Saved.")

    with monkeypatch.context() as patch:
        patch.setattr(commands, "train_new", stopped)
        assert command("train", "avatarl", *words(text=text)) == 75
    assert "The same `loopless train avatarl` again continues it" in capsys.readouterr().err
