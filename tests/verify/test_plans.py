"""How parameters are read: names, layouts, libraries, and what is said where they do not tell."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from loopless.verify import Options, UsageError
from loopless.verify.arrays import library_names
from loopless.verify.contracts import CONTRACTS
from loopless.verify.forms import hidden
from loopless.verify.plans import Record, plans

GAE = CONTRACTS["gae"]


def first(function, contract=GAE, **options):
    return next(iter(plans(function, contract, Options(**options))))


@pytest.mark.parametrize(
    ("signature", "forms"),
    [
        ("rewards, values, next_values, terminated, truncated, gamma, lambda_", None),
        ("reward, value, done, bootstrap_value, gamma, gae_lambda", "done last_values"),
        ("rews, vals, dones, last_val, gamma, lam", "done last_values"),
        ("r_t, discount_t, values, lambda_", "discounts"),
        ("rewards, values, dones, next_value, next_done, gamma, lmbda", "starts last_done"),
        ("rewards, values, episode_starts, last_values, dones, gamma, tau", "starts last_done"),
        ("mb_rewards, mb_values, mb_dones, last_values, gamma, lam", "rewards values done"),
        ("rewards, values, masks, next_values, gamma, lam", "not_done next_values"),
    ],
)
def test_well_known_names_are_understood(signature, forms):
    namespace = {}
    exec(f"def function({signature}): pass", namespace)
    mapping = first(namespace["function"]).mapping
    assert set((forms or signature.replace(",", " ")).split()) <= set(mapping.values())


def test_a_name_that_may_be_two_things_makes_several_plans():
    def function(rewards, values, next_value, dones, gamma, lam): ...

    meanings = {plan.mapping["next_value"] for plan in plans(function, GAE, Options())}
    assert meanings == {"next_values", "last_values"}


def test_what_is_asked_for_by_map_is_taken():
    def function(a, values, dones, gamma, lam, last_value): ...

    assert first(function, maps={"a": "rewards"}).mapping["a"] == "rewards"


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        ("rewards, values, x, y, gamma, lam", {}, "cannot tell what 'x', 'y' of its parameters"),
        ("rewards, values, lam", {}, "it must be given gamma or discounts"),
        ("rewards, values, gamma, lam", {"maps": {"rewads": "rewards"}}, "mean 'rewards'"),
        ("a, values, gamma, lam", {"maps": {"a": "reward"}}, "Did you mean 'rewards'"),
        ("rewards, values, gamma, lam", {"layout": "rows"}, "--layout rows is none of gae's"),
        ("batch", {}, "names none of the keys"),
    ],
)
def test_what_names_do_not_tell_is_asked_for(signature, options, message):
    namespace = {}
    exec(f"def function({signature}): pass", namespace)
    with pytest.raises(UsageError, match=message):
        first(namespace["function"], **options)


def test_keys_of_one_argument_are_read_from_the_code():
    def function(batch, gamma, lam):
        return batch["rewards"] + batch["values"] + batch.next_values * batch["dones"]

    plan = first(function)
    assert plan.record == "batch"
    assert set(plan.keys) == {"rewards", "values", "next_values", "dones"}


def test_a_record_is_read_by_key_and_by_attribute():
    record = Record(values=1, rewards=2)
    assert record["values"] == record.values == 1
    assert record.rewards == 2
    with pytest.raises(AttributeError):
        _ = record.dones


def test_the_library_is_read_from_the_code():
    def in_numpy(x):
        return np.sum(x)

    def in_torch(x):
        return torch.sum(x)

    def in_jax(x):
        return jnp.sum(np.asarray(x))

    def through_another(x):
        return _helper(x)

    def of_none(x):
        return x + x

    assert library_names(in_numpy) == ("numpy",)
    assert library_names(in_torch) == ("torch",)
    assert library_names(in_jax) == ("jax", "numpy")
    assert library_names(through_another) == ("torch",)
    assert library_names(of_none)[0] == "numpy"


def _helper(x):
    return torch.sum(x)


@pytest.mark.parametrize(
    ("forms", "mistakes"),
    [
        ("rewards values next_values terminated truncated", []),
        ("rewards values next_values terminated done", []),
        ("rewards values next_values done", ["treats_truncation_as_termination"]),
        ("rewards values next_values", ["ignores_ends"]),
        ("rewards values next_values discounts", ["ignores_truncations"]),
        ("rewards values_and_last terminated truncated", ["bootstraps_from_the_next_row"]),
        ("rewards next_q done", ["takes_done_for_terminated"]),
        ("rewards next_q terminated", []),
    ],
)
def test_what_a_function_cannot_know_follows_from_what_it_is_given(forms, mistakes):
    assert [x.mistake for x in hidden(forms.split())] == mistakes
