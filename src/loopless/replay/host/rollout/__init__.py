"""The rollout buffer of on-policy methods.

`buffer` is what a caller sees; `columns` stores the steps and cuts them into batches, `estimates`
knows what ends mean and computes advantages and returns.
"""
