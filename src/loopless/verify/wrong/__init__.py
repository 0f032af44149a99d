"""Small functions that go wrong as well-known code does, each with the diagnosis that it must get.

    loopless verify loopless.verify.wrong.gae:termination_only --as gae

They are written for this folder; each behaves like code that people use, named in its docstring.
"""

from typing import NamedTuple


class Wrong(NamedTuple):
    """A function, what it claims to be, and the words that its diagnosis must hold."""

    function: str  # MODULE:FUNCTION in this folder
    claim: str
    diagnosis: str
    equal: bool = False  # right on finite numbers, and warned of


WRONG = (
    Wrong("gae:termination_only", "gae", "Treats truncation as termination"),
    Wrong("gae:lagged_flags", "gae", "Reads the flag one step late"),
    Wrong("gae:zero_at_the_windows_end", "gae", "Bootstraps the end of the window with 0"),
    Wrong("gae:next_row_at_truncations", "gae", "Bootstraps from the next row's value"),
    Wrong("gae:flows_through_truncations", "gae", "Carries the trace across truncations"),
    Wrong("gae:own_value_at_time_limits", "gae", "Bootstraps a truncated step from the value of"),
    Wrong("gae:time_limit_wins", "gae", "Bootstraps a step that is both terminated and"),
    Wrong("gae:no_value_added", "gae", "Returns the advantages as returns"),
    Wrong("gae:powers_by_cumulative_sums", "gae", "Divides by prefix products"),
    Wrong("gae:masked_afterwards", "gae", "Lets padding leak into valid rows"),
    Wrong("gae:multiplied_gates", "gae", "Masks by multiplying: 0·NaN is NaN", equal=True),
    Wrong("in_torch:convolution", "gae", "Drops terms below 1e-7"),
    Wrong("in_torch:from_a_batch", "gae", "Treats truncation as termination"),
    Wrong("gae:scan_over_done", "gae", "Treats truncation as termination"),
    Wrong("in_numpy:lambda_from_zero", "lambda_returns", "Starts the λ-return from 0"),
    Wrong("in_numpy:rewards_to_go", "discounted_returns", "Sums rewards only"),
    Wrong("in_numpy:windows_through_resets", "n_step_returns", "n-step windows cross truncations"),
    Wrong("in_numpy:one_reward_too_many", "n_step_returns", "n-step windows are one step too long"),
    Wrong("in_numpy:unclipped_vtrace", "vtrace", "Does not clip the importance ratios"),
    Wrong("in_numpy:vtrace_into_the_next_episode", "vtrace", "reads v_{t+1} at a truncation"),
    Wrong("in_numpy:values_of_padding", "token_gae", "Bootstraps a token from the value of the"),
    Wrong("in_numpy:turns_apart", "token_gae", "Resets the trace at a gap"),
    Wrong("in_numpy:sample_deviation", "normalize", "Divides by the sample deviation"),
    Wrong("in_numpy:counted_padding", "normalize", "Normalizes over padding"),
    Wrong("in_numpy:done_is_the_end", "q_targets", "Takes `done` for `terminated`"),
    Wrong("in_numpy:never_ends", "q_targets", "Bootstraps after a terminal state"),
    Wrong("in_numpy:networks_swapped", "q_targets", "Swaps the networks of double Q-learning"),
    Wrong("in_numpy:multiplied", "q_targets", "Masks the bootstrap by multiplying", equal=True),
    Wrong("in_numpy:unweighted", "q_loss", "Leaves the importance weights out"),
    Wrong("in_torch:all_pairs", "q_loss", "Subtracts a column from a row"),
    Wrong("in_torch:beta_for_delta", "q_loss", "Takes δ for the β of smooth L1"),
    Wrong(
        "in_torch:residual_gradient", "q_loss", "Lets the gradient flow through the target", True
    ),
    Wrong("in_torch:no_minimum", "ppo_loss", "Leaves the minimum out"),
    Wrong("in_torch:entropy_punished", "ppo_loss", "Adds the entropy to the loss"),
    Wrong("in_torch:loose_threshold", "avatarl_loss", "Compares normalized products with"),
    Wrong("in_torch:subset_softmax", "avatarl_loss", "Takes the student's softmax over the"),
    Wrong("in_torch:gradient_on_both_sides", "allo_loss", "Lets the gradient through both sides"),
    Wrong("in_numpy:newest_left_out", "uniform_sampler", "Never draws the newest slot"),
    Wrong("in_numpy:seeded_inside", "uniform_sampler", "Draws the same batch each time"),
    Wrong("in_numpy:no_exponent", "prioritized_sampler", "Leaves α out"),
    Wrong("in_numpy:weights_of_any_size", "prioritized_sampler", "Does not divide the weights"),
    Wrong("in_numpy:empty_slots", "prioritized_sampler", "Draws slots whose priority is 0"),
    Wrong("in_numpy:across_resets", "geometric_sampler", "Samples cross episode ends ("),
    Wrong("in_numpy:capped_table", "geometric_sampler", "its table of ends is too short"),
    Wrong("in_numpy:cut_off", "geometric_sampler", "Cuts gaps off at the end of the episode"),
    Wrong("in_numpy:from_the_start_itself", "geometric_sampler", "Pairs states with themselves"),
)
