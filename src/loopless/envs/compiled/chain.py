"""The closed-form chain, compiled. Rules and right answers are `worlds.ChainWorld`'s.

Imports JAX. Its other face is `gym_worlds.ChainEnv`; both are compared in
`tests/envs/test_worlds.py`.
"""

from loopless.envs.compiled.tables import Table, TableState
from loopless.envs.worlds.chain_and_pixels import ChainWorld

ChainState = TableState


class Chain(ChainWorld, Table):
    """`worlds.ChainWorld` as pure functions."""
