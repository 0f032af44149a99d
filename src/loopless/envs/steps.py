"""What a vector of environments says of one step: the same record in both modes.

Two observations are kept apart: the true successor, which a value is bootstrapped from, and the
one to act on next, which after an end belongs to a new episode. A NamedTuple, so that JAX carries
it through a scan. Imports nothing but the standard library.
Tests: `tests/envs/test_autoreset.py`, `tests/envs/test_hosted.py`.
"""

from typing import Any, NamedTuple


class VectorStep(NamedTuple):
    """One step of all environments; every field is [envs, ...].

    next_obs: what the action led to; at an end the final observation, never a reset's.
    reward, terminated, truncated: of this step, the two ends apart; both may be set.
    valid: false for a row that is no experience (the reset step of a NEXT_STEP environment).
    obs: what to act on next; after an end, the first observation of the new episode.
    mask: which actions are legal on `obs`, [envs, n] booleans (`envs/masks.py`); None if the
        environments have no masks.
    episode_return, episode_length: of the running episode, this step included; they are final
        where `ended`, and start again after it.
    """

    next_obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    obs: Any
    episode_return: Any
    episode_length: Any
    mask: Any = None

    @property
    def ended(self) -> Any:
        """Where an episode ended with this step."""
        return (self.terminated | self.truncated) & self.valid
