"""What runs on text refuse to be told, all of it at once; and that names of sizes are the nets'."""

from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest

from loopless.nets.gpt.model import SIZES
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.config import LM, TextOptions


@pytest.mark.parametrize("cls", [LM, AvataRL])
def test_the_defaults_make_sense(cls):
    assert cls().problems() == []


def test_sizes_are_those_of_the_nets():
    sizes = list(SIZES)
    assert list(get_args(get_type_hints(TextOptions)["size"])) == sizes
    given = get_args(get_type_hints(AvataRL)["critic_size"])[0]
    assert list(get_args(given)) == sizes


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (LM, {"steps": 0}, "steps must be at least 1; received 0."),
        (LM, {"block": 0}, "block must be at least 1; received 0."),
        (LM, {"learning_rate": 0.0}, "learning_rate must be above 0; received 0.0."),
        (LM, {"adam_beta_2": 1.0}, "adam_beta_2 must be in [0, 1); received 1.0."),
        (LM, {"validation_share": 1.0}, "validation_share must be in (0, 1); received 1.0."),
        (LM, {"weight_decay": float("inf")}, "weight_decay must be finite; received inf."),
        (LM, {"token_type": "uint16"}, "token_type is for token files"),
        (LM, {"tokens": "a", "text": "b"}, "text and tokens are both given"),
        (LM, {"tokens": "a", "tokenizer": "char"}, "tokenizer is for text"),
        (LM, {"vocabulary": 200}, "must be at least 257 for bpe; received 200."),
        (LM, {"tokenizer": "byte", "vocabulary": 300}, "must be 257 for bytes"),
        (AvataRL, {"top_k": 0}, "top_k must be at least 1; received 0."),
        (AvataRL, {"critic_weight": -1.0}, "critic_weight must be at least 0; received -1.0."),
        (AvataRL, {"reality_weight": 0.0, "critic_weight": 0.0}, "are both 0"),
        (AvataRL, {"label_smoothing": 1.0}, "label_smoothing must be in [0, 1); received 1.0."),
        (AvataRL, {"reward_clamp": 0.0}, "reward_clamp must be above 0; received 0.0."),
        (AvataRL, {"cache_critic": True, "order": "random"}, "use --order shuffled"),
        (AvataRL, {"cache_critic": True, "loss": "ce"}, "--loss ce has none"),
        (AvataRL, {"block": 0}, "block must be at least 1"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_said(cls, options, message):
    (problem,) = replace(cls(), **options).problems()
    assert message in problem


def test_all_that_is_wrong_is_said_at_once():
    wrong = AvataRL(steps=0, top_k=0, label_smoothing=2.0, learning_rate=-1.0).problems()
    assert len(wrong) == 4


def test_a_critic_on_the_fly_is_what_its_student_is_but_for_what_is_its_own():
    config = AvataRL(block=32, layers=2, critic_steps=7, critic_seed=3, seed=9)
    critic = config.critic_config()
    own = {"steps": 7, "seed": 3}
    for field in fields(LM):
        expected = own.get(field.name, getattr(config, field.name))
        assert getattr(critic, field.name) == expected, field.name


def test_a_critic_of_another_size_has_its_own_body():
    config = AvataRL(layers=2, heads=1, width=8, critic_size="1M").critic_config()
    assert (config.size, config.layers, config.heads, config.width) == ("1M", None, None, None)
