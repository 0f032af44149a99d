"""The tables: for each core ATen operator, by name, the function of JAX arrays that computes it."""

from loopless.fused.operators import (
    arithmetic,
    convolutions,
    indexing,
    layers,
    pooling,
    random,
    reductions,
    shapes,
)

OPERATORS = {
    **arithmetic.OPERATORS,
    **shapes.OPERATORS,
    **reductions.OPERATORS,
    **indexing.OPERATORS,
    **layers.OPERATORS,
    **convolutions.OPERATORS,
    **pooling.OPERATORS,
}
RANDOM = random.OPERATORS
