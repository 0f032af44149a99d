"""The settings of each trainer as Python passes them, for editors and type checkers.

`config.py` of each trainer has their defaults and meanings; a test holds both together.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class RunSettings(TypedDict, total=False):
    """The settings of every run."""

    steps: int
    seed: int
    run: str | None
    runs: str | Path
    log_every: int
    plot_every: int
    checkpoint_every: int
    on_nan: Literal["stop", "skip"]
    profile: bool
    tensorboard: bool
    cache: bool


class AgentSettings(TypedDict, total=False):
    """The settings of runs whose agents act in environments."""

    env_kwargs: Mapping[str, Any]
    wrapper: Sequence[str]
    mode: Literal["auto", "compiled", "hosted"]
    seeds: int
    envs: int
    vectorization: Literal["auto", "sync", "async", "native", "envpool"]
    step_timeout: float
    overlap: bool
    net: Literal["auto", "mlp", "conv"]
    hidden: Sequence[int]
    gamma: float
    eval_every: int
    eval_episodes: int
    eval_max_steps: int | None


class DQNSettings(AgentSettings, RunSettings, total=False):
    """The settings of `train_dqn`."""

    overlap_events: int
    activation: Literal["relu", "tanh", "selu"]
    duelling: bool
    target: Literal["replace", "polyak", "off"]
    target_every: int
    tau: float
    double: bool
    sarsa: bool
    n_step: int
    buffer_size: int
    frames: Literal["once", "twice"]
    batch_size: int
    learning_starts: int
    train_every: int
    updates: int
    repeats: int
    accumulate: int
    mega_batch: bool
    newest: int
    prioritized: Literal["off", "exact", "block"]
    alpha: float
    beta: float
    priority_epsilon: float
    exploration: Literal["epsilon", "boltzmann"]
    explore_start: float
    explore_end: float
    explore_steps: int
    loss: Literal["mse", "huber"]
    huber_delta: float
    optimizer: Literal["adam", "adamw", "sgd"]
    learning_rate: float
    learning_rate_end: float | None
    weight_decay: float
    max_gradient_norm: float | None
    update: Literal["fused", "loop"]


class PPOSettings(AgentSettings, RunSettings, total=False):
    """The settings of `train_ppo`."""

    horizon: int
    algorithm: Literal["ppo", "a2c"]
    activation: Literal["tanh", "relu", "selu"]
    shared: bool
    core: Literal["none", "gru", "lstm"]
    core_width: int
    squash: bool
    state_std: bool
    log_std_start: float
    gae_lambda: float
    epochs: int
    minibatches: int
    clip: float
    clip_end: float | None
    value_clip: float | None
    value_coefficient: float
    entropy_coefficient: float
    entropy_end: float | None
    normalize_advantages: Literal["minibatch", "batch", "off"]
    target_kl: float | None
    normalize_obs: bool
    normalize_rewards: bool
    learning_rate: float
    learning_rate_end: float
    adam_epsilon: float
    max_gradient_norm: float


class ALLOSettings(RunSettings, total=False):
    """The settings of `train_allo`."""

    seeds: int
    grid: str
    doors: int
    door_seed: int
    data: str | Path | None
    terminals: Literal["double", "single", "none"]
    law: Literal["transition", "episode"]
    weights: str
    envs: int
    env_steps: int
    episode_length: int
    components: int
    inputs: Literal["xy", "onehot", "pixels"]
    net: Literal["auto", "mlp", "conv"]
    hidden: Sequence[int]
    activation: Literal["relu", "tanh", "selu"]
    encode: Literal["auto", "states", "batches"]
    objective: Literal["allo", "ggdo"]
    scale: Literal["half", "full"]
    discount: float
    max_gap: int | None
    batch_size: int
    learning_rate: float
    learning_rate_end: float
    dual_start: float
    dual_rate: float
    dual_limit: float
    proportional_gain: float
    integral_gain: float
    integral_decay: float
    barrier: Sequence[float]
    barrier_rate: float
    barrier_limit: float
    gate_threshold: float | None
    perturbation: Literal["none", "exponential", "squared", "squared-null-grad"]
    perturbation_scale: float
    perturbation_width: float
    permute_at: int | None


class TextSettings(TypedDict, total=False):
    """The settings of language models."""

    text: str | Path | None
    tokenizer: Literal["byte", "char", "bpe"] | None
    vocabulary: int | None
    validation_share: float
    tokens: str | Path | None
    validation_tokens: str | Path | None
    token_type: Literal["uint16", "uint32"] | None
    tokenizer_file: str | Path | None
    order: Literal["shuffled", "random"]
    size: Literal["0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"]
    layers: int | None
    heads: int | None
    width: int | None
    block: int
    compute: Literal["float32", "bfloat16"]
    recompute: Literal["auto", "on", "off"]
    batch: int
    accumulate: int
    learning_rate: float
    learning_rate_end: float
    warmup: int
    weight_decay: float
    adam_beta_1: float
    adam_beta_2: float
    adam_epsilon: float
    max_gradient_norm: float
    eval_every: int
    eval_windows: int


class LMSettings(TextSettings, RunSettings, total=False):
    """The settings of `train_lm`."""


class AvataRLSettings(TextSettings, RunSettings, total=False):
    """The settings of `train_avatarl`."""

    critic: str | Path | None
    critic_checkpoint: str
    critic_steps: int
    critic_size: (
        Literal["0.2M", "0.5M", "1M", "3M", "10M", "30M", "70M", "124M", "150M", "250M"] | None
    )
    critic_seed: int
    cache_critic: bool
    loss: Literal["avatarl", "soft", "distillation", "ce"]
    variant: Literal["fixed", "original", "subset", "full"]
    top_k: int
    reality_weight: float
    critic_weight: float
    confidence: bool
    label_smoothing: float
    reward_scale: float
    reward_clamp: float
    entropy_coefficient: float
