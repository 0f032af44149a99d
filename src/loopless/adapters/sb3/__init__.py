"""Stable-Baselines3's own DQN and PPO, with compiled updates and compiled acting inside.

    from loopless.adapters.sb3 import DQN, PPO       # was: from stable_baselines3 import DQN, PPO

`dqn.py` and `ppo.py` say what each replaces of its parent; `updates.py` is the way to `fuse`, and
`acting.py` the way to `forward` and `actor`. Whatever these cannot take goes on in
Stable-Baselines3's own code, which is said once.
"""

try:
    import stable_baselines3
except ImportError as error:
    raise ImportError(
        "loopless.adapters.sb3 needs Stable-Baselines3: pip install 'loopless[sb3]'"
    ) from error

from loopless.adapters.sb3.buffers import PrioritizedReplayBuffer, ReplayBuffer, RolloutBuffer
from loopless.adapters.sb3.dqn import DQN
from loopless.adapters.sb3.ppo import PPO

__all__ = ["DQN", "PPO", "PrioritizedReplayBuffer", "ReplayBuffer", "RolloutBuffer"]
