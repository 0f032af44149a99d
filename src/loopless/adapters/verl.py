"""GAE for verl's PPO on language models, without its loop over tokens.

verl 0.9 hands `values`, gamma and lambda to its estimator "gae" alone; estimators of other names
get rewards and mask. `register` therefore has two ways, and says which one a trainer needs.
"""

from typing import Any

import loopless as ll

NAME = "loopless_gae"


def gae(
    token_level_rewards: Any,
    values: Any = None,
    response_mask: Any = None,
    gamma: Any = None,
    lam: Any = None,
    config: Any = None,
    **_: Any,
) -> tuple[Any, Any]:
    """Return whitened advantages and returns [B, T] over the tokens of `response_mask`.

    Equals verl's "gae" there. Tokens outside of the mask have advantage 0 and return 0; verl leaves
    numbers there that nothing reads. gamma and lam come from `config` if they are not given.
    """
    if values is None or response_mask is None:
        raise TypeError(
            f"{NAME}: verl gave no values: it gives them to the estimator 'gae' alone. Call "
            "loopless.adapters.verl.register(replace_gae=True), and keep "
            "algorithm.adv_estimator=gae."
        )
    gamma = getattr(config, "gamma", 1.0) if gamma is None else gamma
    lam = getattr(config, "lam", 1.0) if lam is None else lam
    mask = response_mask != 0
    rewards, values = token_level_rewards.detach(), values.detach()
    advantages, returns = ll.token_gae(
        rewards, values, mask, gamma=float(gamma), lambda_=float(lam), time_axis=1
    )
    return whiten(advantages, mask), returns


def whiten(advantages: Any, mask: Any) -> Any:
    """Return advantages with mean 0 and variance 1 over the mask, by verl's formula."""
    count = mask.sum()
    if count < 2:
        raise ValueError(f"{NAME}: whitening needs at least two tokens; received {int(count)}")
    total = count + 1e-8
    mean = advantages.sum() / total
    centered = (advantages - mean).where(mask, 0.0)
    variance = (centered**2).sum() / total * (count / (count - 1))
    return centered * (variance + 1e-8).rsqrt()


def register(core_algos: Any = None, *, replace_gae: bool = False) -> None:
    """Add "loopless_gae" to verl's table of estimators; call it in the process of the trainer.

        algorithm.adv_estimator=loopless_gae critic.enable=True

    Without `critic.enable=True` verl switches the critic off for any name but "gae".

    replace_gae: let "gae" itself be ours, for trainers that give `values` to that name alone, as
        verl 0.9 does. Then nothing changes in the configuration.
    core_algos: verl's module `verl.trainer.ppo.core_algos`, imported if it is not given.
    """
    if core_algos is None:
        try:
            from verl.trainer.ppo import core_algos  # type: ignore[no-redef]
        except ImportError as error:
            raise ImportError(f"adapters.verl: verl cannot be imported: {error}") from error
    core_algos.register_adv_est(NAME)(gae)
    if replace_gae:
        core_algos.ADV_ESTIMATOR_REGISTRY["gae"] = gae
        core_algos.compute_gae_advantage_return = gae
