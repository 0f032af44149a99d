"""Every metric that a run may log: its unit, its meaning, and the picture that shows it.

There is one table: the log refuses names that are not in it, the plots read their pictures from
it, and the documentation prints it as a glossary.
"""

from dataclasses import dataclass
from typing import Literal

Style = Literal["line", "low", "high", "spread", "stack"]


@dataclass(frozen=True)
class Metric:
    """A row of the table.

    `picture` is the name of its file under `plots/`, or None if it is not drawn. `style` says how
    it is drawn: as a line; as the low or high edge of the band around that picture's line; as the
    half-width of that band (spread); or as a layer of a stack whose sum is 1. `each` says whether
    there is one number for each seed, or one for each component of each seed.
    """

    unit: str
    explanation: str
    picture: str | None = None
    style: Style = "line"
    each: Literal["seed", "component"] = "seed"


METRICS: dict[str, Metric] = {
    "return_mean": Metric(
        "reward",
        "Mean undiscounted return of the episodes that ended since the last row.",
        "return",
    ),
    "return_min": Metric("reward", "Smallest of those returns.", "return", "low"),
    "return_max": Metric("reward", "Largest of those returns.", "return", "high"),
    "length_mean": Metric("steps", "Mean length of those episodes.", "length"),
    "episodes": Metric("count", "Episodes that have ended since the start of the run."),
    "eval_return": Metric(
        "reward",
        "Mean return of the evaluation episodes: no exploration, environments of their own.",
        "evaluation",
    ),
    "eval_return_std": Metric(
        "reward", "Standard deviation of those returns.", "evaluation", "spread"
    ),
    "eval_return_min": Metric("reward", "Smallest of those returns.", "evaluation", "low"),
    "eval_return_max": Metric("reward", "Largest of those returns.", "evaluation", "high"),
    "eval_length_mean": Metric("steps", "Mean length of the evaluation episodes."),
    "eval_cut": Metric("count", "Evaluation episodes that were cut at the limit on their steps."),
    "eval_episodes": Metric("count", "Evaluation episodes behind this row."),
    "loss": Metric("loss", "Mean loss of the updates since the last row.", "loss"),
    "td_error": Metric(
        "reward", "Mean absolute difference between taken Q-values and their targets.", "td_error"
    ),
    "q_mean": Metric("reward", "Mean Q-value of the actions taken in the sampled steps.", "q_mean"),
    "policy_loss": Metric(
        "loss",
        "Mean surrogate loss of the policy: minus the advantage that its changes promise.",
        "policy_loss",
    ),
    "value_loss": Metric(
        "reward²", "Mean of half the squared error of the values, before weighting.", "value_loss"
    ),
    "entropy": Metric("nats", "Mean entropy of the policy: how open its choices are.", "entropy"),
    "approximate_kl": Metric(
        "nats",
        "Mean approximate KL divergence of the policy from the one that acted, during the updates.",
        "approximate_kl",
    ),
    "clip_fraction": Metric(
        "share", "Share of rows whose probability ratio left the clip range.", "clip_fraction"
    ),
    "explained_variance": Metric(
        "share",
        "How much of the variance of the returns the values explain: 1 all, 0 none (or there is "
        "none), below 0 they mislead.",
        "explained_variance",
    ),
    "gradient_norm": Metric(
        "norm", "Mean Euclidean norm of the gradient, before clipping.", "gradient_norm"
    ),
    "graph_loss": Metric(
        "loss", "Mean squared difference of the features of a state and a later one.", "graph_loss"
    ),
    "similarity_mean": Metric(
        "share",
        "Mean over the components of how much of each lies in its true eigenspace: 1 is all.",
        "similarity",
    ),
    "similarity": Metric(
        "share", "How much of each component lies in its true eigenspace.", each="component"
    ),
    "eigenvalue": Metric(
        "eigenvalue",
        "Learned eigenvalue of each component, of the Laplacian of the pairs that were drawn.",
        each="component",
    ),
    "eigenvalue_error": Metric(
        "share",
        "Largest relative error of the learned eigenvalues after the first.",
        "eigenvalue_error",
    ),
    "orthogonality_error": Metric(
        "share",
        "Largest deviation of the features' inner products from 0 and 1, over about 1,000 steps.",
        "orthogonality_error",
    ),
    "dual": Metric("multiplier", "Multiplier of each component's norm.", each="component"),
    "barrier": Metric("weight", "Weight of the squared constraints.", "barrier"),
    "hitting_time_correlation": Metric(
        "rank correlation",
        "Between the steps from state to state by the learned eigenpairs and the exact ones.",
        "hitting_times",
    ),
    "validation_loss": Metric(
        "nats per token",
        "Mean cross-entropy of the model on the validation windows, which are always the same.",
        "validation",
    ),
    "critic_loss": Metric(
        "nats per token", "Mean cross-entropy of the critic on these windows.", "validation"
    ),
    "token_trigram_loss": Metric(
        "nats per token",
        "Mean cross-entropy on these windows of a trigram model, counted from the training tokens.",
        "validation",
    ),
    "validation_per_character": Metric(
        "nats per character",
        "The loss on the validation windows, divided by the characters in them.",
        "validation_characters",
    ),
    "critic_per_character": Metric(
        "nats per character",
        "The critic's loss on these windows, divided by the characters in them.",
        "validation_characters",
    ),
    "token_trigram_per_character": Metric(
        "nats per character",
        "The token trigram's loss on these windows, divided by the characters in them.",
        "validation_characters",
    ),
    "character_trigram_per_character": Metric(
        "nats per character",
        "Mean cross-entropy of a trigram model, counted from the characters of the training text.",
        "validation_characters",
    ),
    "gold_reward": Metric(
        "reward", "Mean reward of the true next token; by the fixed variant its share.", "reward"
    ),
    "gold_rewarded": Metric("share", "Share of positions at which it is rewarded.", "rewarded"),
    "kept": Metric("count", "Mean number of actions with a reward.", "actions"),
    "actions": Metric("count", "Mean number of actions that were weighed.", "actions"),
    "kl": Metric(
        "nats", "Mean KL divergence of the student from the rewards, normalised.", "target_kl"
    ),
    "tokens": Metric("count", "Tokens learned from since the start of the run."),
    "epoch": Metric("count", "Passes over the training tokens since the start of the run."),
    "epsilon": Metric("probability", "Chance that an action is drawn at random.", "exploration"),
    "temperature": Metric("reward", "Temperature of Boltzmann exploration.", "exploration"),
    "beta": Metric("exponent", "Strength of the importance weights of prioritized replay."),
    "learning_rate": Metric("rate", "Step size of the optimiser.", "learning_rate"),
    "clip": Metric("share", "Clip range of the probability ratio.", "clip"),
    "entropy_coefficient": Metric("weight", "Weight of the entropy in the loss."),
    "updates": Metric("count", "Gradient updates since the start of the run."),
    "skipped_updates": Metric(
        "count", "Updates left out because they were not finite, since the start of the run."
    ),
    "stopped_updates": Metric(
        "count",
        "Updates left out because the policy had moved far enough (target_kl), since the start of "
        "the run.",
    ),
    "replay_size": Metric("count", "Steps held in the replay buffer."),
    "steps_per_second": Metric(
        "1/s", "Environment steps per second since the last row, compilation excluded.", "speed"
    ),
    "updates_per_second": Metric("1/s", "Gradient updates per second since the last row.", "speed"),
    "tokens_per_second": Metric(
        "1/s", "Tokens learned from per second since the last row.", "tokens_per_second"
    ),
    "time_data": Metric("share", "Share of the time spent on drawing data.", "time", "stack"),
    "time_critic": Metric("share", "Share of the time spent asking the critic.", "time", "stack"),
    "time_env": Metric("share", "Share of the time spent in environments.", "time", "stack"),
    "time_act": Metric("share", "Share of the time spent choosing actions.", "time", "stack"),
    "time_learn": Metric("share", "Share of the time spent learning.", "time", "stack"),
    "time_log": Metric(
        "share", "Share of the time spent on metrics, checkpoints and plots.", "time", "stack"
    ),
    "time_other": Metric("share", "Share of the time spent on the rest.", "time", "stack"),
    "memory_bytes": Metric("bytes", "Memory the process holds (resident set size)."),
}
