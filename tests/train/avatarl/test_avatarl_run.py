"""Runs of AvataRL: resumed bit for bit, with a cache or without; critics that do not fit."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest
from lm_cases import avatarl, lm, make, resume, train, weights_of, write_text
from run_results import checkpoint_files, rows

from loopless.nets.gpt.weights import read_gpt2
from loopless.runs.failures import BadConfig, BadRun
from loopless.runs.progress.clock import Clock
from loopless.train.avatarl import critic as critics
from loopless.train.avatarl import run as avatarl_run
from loopless.train.avatarl.critic import CachedStreams, Streams
from loopless.train.lm.algorithm import load_model
from loopless.train.lm.data import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def text(root):
    return write_text(root)


@pytest.fixture(scope="module")
def critic(root, text):
    """A critic's run, of another seed than its students."""
    return train(root, lm(text, seed=1, batch=12), "critic")


@pytest.fixture(scope="module")
def whole(root, critic):
    """A student without a disturbance: so many windows that some come again."""
    return train(root, avatarl(critic, batch=12), "whole")


def same_weights(one, other):
    found, expected = weights_of(one), weights_of(other)
    assert found.keys() == expected.keys()
    return all(np.array_equal(found[name], expected[name]) for name in expected)


def test_killed_and_resumed_without_its_critic_it_ends_with_the_same_bytes(whole, critic, tmp_path):
    killed = train(tmp_path, avatarl(critic, batch=12), "killed", dies_after=12)
    hidden = critic.rename(tmp_path / "hidden")
    resume(killed)
    hidden.rename(critic)
    assert checkpoint_files(killed) == checkpoint_files(whole)
    assert rows(killed) == rows(whole)


def test_what_is_kept_of_the_critic_changes_no_bit(whole, critic, tmp_path):
    config = avatarl(critic, batch=12, cache_critic=True)
    trainer = make(config)
    assert trainer.data.windows.count < 12 * 20  # some windows come again
    cached = train(tmp_path, config, "cached")
    assert same_weights(cached, whole)
    assert rows(cached) == rows(whole)


def test_a_window_is_asked_for_once(critic, monkeypatch):
    asked = []
    own = Streams.of
    monkeypatch.setattr(
        Streams, "of",
        lambda self, windows, starts: asked.extend(starts.tolist()) or own(self, windows, starts),
    )  # fmt: skip
    trainer = make(avatarl(critic, batch=12, cache_critic=True))
    for _ in range(5):
        trainer.batches(trainer.event, 4, Clock())
        trainer.event += 4
    assert len(asked) == len(set(asked)) == trainer.data.windows.count


def test_a_cache_that_does_not_fit_is_refused(critic, monkeypatch):
    monkeypatch.setattr(critics, "free_memory_bytes", lambda: 1000)
    with pytest.raises(BadConfig, match=r"need .*; .* is free"):
        make(avatarl(critic, cache_critic=True))


def test_a_cache_of_windows_that_are_not_aligned_is_refused(critic):
    trainer = make(avatarl(critic, order="random"))
    with pytest.raises(BadConfig, match="aligned windows"):
        CachedStreams(trainer.advisor.streams, trainer.data.windows)


def test_a_stream_is_what_the_critic_makes_of_each_window(critic):
    trainer = make(avatarl(critic))
    found = trainer.batches(2, 4, Clock())
    windows = found["windows"].reshape(-1, 9)
    expected = jax.jit(lambda model, x: model(x))(trainer.advisor.model, windows[:, :-1])
    logits = trainer.advisor.model.logits(found["stream"]).reshape(expected.shape)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_the_critic_is_frozen_and_kept_as_it_was(whole, critic):
    model = read_gpt2(whole / "critic.safetensors")
    arrays = {name.removeprefix("weights/"): x for name, x in best_of(critic).items()}
    expected = load_model(lm(""), arrays)
    for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def best_of(path):
    from loopless.runs.checkpoint import Checkpoints

    return Checkpoints(path).load("best", kind="weights").arrays


def test_rows_tell_of_critic_and_rewards(whole, critic):
    found = rows(whole)
    (first, *_), *_, last = [r for r in found if r["kind"] == "train"], found[-1]
    for name in ("gold_reward", "gold_rewarded", "kept", "actions", "kl", "entropy"):
        assert np.isfinite(first[name]), name
    assert first["gold_rewarded"] == 1
    assert 1 <= first["kept"] <= first["actions"] <= 5
    assert last["critic_loss"] > 0


def test_a_plain_student_needs_no_critic_and_is_a_language_model(root, text, critic):
    own = {"tokenizer": "char", "text": text}
    plain = train(root, avatarl(None, loss="ce", batch=12, seed=1, **own), "plain")
    assert same_weights(plain, critic)
    assert "critic_loss" not in rows(plain)[-1]
    with_critic = make(avatarl(critic, loss="ce"))
    assert not with_critic.advisor.advises
    assert set(with_critic.batches(0, 1, Clock())) == {"windows"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": 300}, "must share one vocabulary.*to have vocabulary=300"),
        ({"tokenizer": "byte"}, "must share one vocabulary.*tokenizer=byte"),
        ({"block": 9}, "sees 8 tokens at once, and block is 9"),
        ({"critic_checkpoint": "step_7"}, "has no checkpoint 'step_7'"),
        ({"top_k": 2, "vocabulary": 300, "block": 9}, "(?s)sees 8.*to have vocabulary=300"),
    ],
    ids=str,
)
def test_a_critic_that_does_not_fit_is_refused(critic, options, message):
    with pytest.raises((BadConfig, BadRun), match=message):
        make(avatarl(critic, **options))


def test_tokens_of_another_vocabulary_are_refused(critic, tmp_path):
    np.zeros(200, "<u2").tofile(tmp_path / "a.bin")
    with pytest.raises(BadConfig, match="the student is to have"):
        make(avatarl(critic, tokens=tmp_path / "a.bin", vocabulary=7))


def test_another_text_is_cut_by_the_critics_tokenizer(critic, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("x = self if naïve else return\n" * 30 + "Ω\n")
    trainer = make(avatarl(critic, text=other))
    made = load_tokenizer(critic)
    assert trainer.data.dataset.tokenizer.pieces == made.pieces
    assert trainer.data.dataset.vocabulary == made.vocabulary


def test_a_file_of_weights_needs_tokens(whole, critic, tmp_path):
    file = whole / "critic.safetensors"
    with pytest.raises(BadConfig, match="has neither a tokenizer of ours nor a text"):
        make(avatarl(file))
    vocabulary = load_tokenizer(critic).vocabulary
    np.zeros(200, "<u2").tofile(tmp_path / "a.bin")
    trainer = make(avatarl(file, tokens=tmp_path / "a.bin", vocabulary=vocabulary))
    assert trainer.data.dataset.tokenizer is None


def test_a_run_that_plays_is_no_critic(critic, tmp_path):
    other = shutil.copytree(critic, tmp_path / "dqn")
    (other / "run.json").write_text('{"format": 1, "trainer": "dqn"}')
    with pytest.raises(BadConfig, match="is a run of dqn"):
        make(avatarl(other))


# --- a critic is found, gone on with, or trained -------------------------------------------------


def test_a_critic_that_is_there_is_found_and_one_that_is_not_is_trained(root, text, tmp_path):
    trained, resumed = [], []

    def before(config):
        def new(name, config):
            trained.append(config)
            return tmp_path / "new"

        return avatarl_run.before(config, new, resumed.append).critic

    wanted = avatarl(None, text=text, tokenizer="char", runs=root, critic_steps=20, batch=12)
    assert before(wanted) == tmp_path / "new"
    assert trained == [wanted.critic_config()]
    done = train(root, trained.pop(), "done")
    assert before(wanted) == done
    assert before(replace(wanted, critic_seed=5)) == tmp_path / "new"
    assert before(replace(wanted, seed=5, top_k=1, log_every=1)) == done
    shutil.rmtree(done / "checkpoints")
    assert before(wanted) == done
    assert (len(trained), resumed) == (1, [done])
    text_before = text.read_text()
    text.write_text(text_before + "x")
    assert before(wanted) == tmp_path / "new"
    text.write_text(text_before)
    assert before(replace(wanted, loss="ce")) is None
