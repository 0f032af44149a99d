"""The suites: what is raced against what, and what must hold. `loopless bench NAME` runs one.

A suite is a folder with a `suite.py`. `ORDER` is the order in which all of them run and are shown.
"""

ORDER = (
    "returns",
    "replay",
    "q_learning",
    "own_code",
    "dqn_speed",
    "dqn_learning",
    "ppo_speed",
    "ppo_learning",
    "avatarl",
    "avatarl_learning",
    "allo_speed",
    "allo_learning",
    "felt",
    "pictures",
)
