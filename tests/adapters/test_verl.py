"""`adapters.verl` against a stand-in.

verl 0.9 wants an older tensordict than TorchRL, which the benchmarks need, so that the two cannot
be installed side by side. The stand-in has its registry, and its estimator written plainly.
"""

import types

import numpy as np
import pytest
import torch

from loopless.adapters import verl


def stand_in():
    """Return a module with the registry of verl's core_algos: a second name is refused."""
    module = types.ModuleType("core_algos")
    module.ADV_ESTIMATOR_REGISTRY = {"gae": plain_gae}
    module.compute_gae_advantage_return = plain_gae

    def register_adv_est(name):
        def enter(function):
            if module.ADV_ESTIMATOR_REGISTRY.get(name, function) != function:
                raise ValueError(f"{name} has already been registered")
            module.ADV_ESTIMATOR_REGISTRY[name] = function
            return function

        return enter

    module.register_adv_est = register_adv_est
    return module


def plain_gae(token_level_rewards, values, response_mask, gamma, lam):
    """Compute verl's advantages one number at a time, in float64: skip, then whiten."""
    rewards, v, mask = (x.double().numpy() for x in (token_level_rewards, values, response_mask))
    advantages = np.zeros_like(v)
    for row in range(len(v)):
        next_value = trace = 0.0
        for t in reversed(range(v.shape[1])):
            if mask[row, t]:
                delta = rewards[row, t] + gamma * next_value - v[row, t]
                trace = delta + gamma * lam * trace
                next_value = v[row, t]
            advantages[row, t] = trace
    inside = advantages[mask != 0]
    whitened = (advantages - inside.mean()) / np.sqrt(inside.var(ddof=1) + 1e-8)
    return torch.from_numpy(whitened), torch.from_numpy(advantages + v)


@pytest.fixture(params=[torch.int64, torch.float32, torch.bool])
def tokens(request):
    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(5, 12, generator=generator) for _ in range(2))
    mask = torch.rand(5, 12, generator=generator) < 0.7
    mask[0] = False
    return rewards, values, mask.to(request.param)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (1.0, 0.0)])
def test_advantages_and_returns_are_verls(tokens, gamma, lam):
    rewards, values, mask = tokens
    arguments = {"gamma": gamma, "lam": lam, "response_mask": mask}
    given = verl.gae(token_level_rewards=rewards, values=values.requires_grad_(), **arguments)
    right = plain_gae(rewards, values.detach(), mask, gamma, lam)
    inside = mask != 0
    for ours, theirs in zip(given, right, strict=True):
        assert not ours.requires_grad
        torch.testing.assert_close(ours[inside].double(), theirs[inside], rtol=1e-5, atol=1e-5)
        assert (ours[~inside] == 0).all()


def test_gamma_and_lambda_come_from_the_configuration(tokens):
    rewards, values, mask = tokens
    config = types.SimpleNamespace(gamma=0.9, lam=0.8)
    given = verl.gae(rewards, values, mask, config=config, index=None)
    right = verl.gae(rewards, values, mask, 0.9, 0.8)
    assert all(torch.equal(a, b) for a, b in zip(given, right, strict=True))


def test_register_adds_a_name_and_may_be_called_twice():
    module = stand_in()
    for _ in range(2):
        verl.register(module)
    assert {"gae": plain_gae, "loopless_gae": verl.gae} == module.ADV_ESTIMATOR_REGISTRY
    verl.register(module, replace_gae=True)
    assert module.ADV_ESTIMATOR_REGISTRY["gae"] is verl.gae
    assert module.compute_gae_advantage_return is verl.gae


def test_a_trainer_that_gives_no_values_learns_what_to_do():
    with pytest.raises(TypeError, match=r"register\(replace_gae=True\)"):
        verl.gae(token_level_rewards=torch.zeros(1, 2), response_mask=torch.ones(1, 2), config=None)


def test_too_few_tokens_are_refused():
    mask = torch.tensor([[1, 0, 0]])
    with pytest.raises(ValueError, match="at least two tokens; received 1"):
        verl.gae(torch.zeros(1, 3), torch.zeros(1, 3), mask, 1.0, 1.0)


def test_without_verl_it_says_so():
    with pytest.raises(ImportError, match="verl cannot be imported"):
        verl.register()
