"""The tables: for each core ATen operator, by name, the function of JAX arrays that computes it."""

from loopless.fused.operators import arithmetic, indexing, layers, random, reductions, shapes

OPERATORS = {
    **arithmetic.OPERATORS,
    **shapes.OPERATORS,
    **reductions.OPERATORS,
    **indexing.OPERATORS,
    **layers.OPERATORS,
}
RANDOM = random.OPERATORS
