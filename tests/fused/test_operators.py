"""Every operator of the lowering table gives what eager PyTorch gives, and so do its gradients."""

import functools

import jax
import numpy as np
import pytest
import torch
from support.operator_cases import CASES
from torch.utils._pytree import tree_leaves

from loopless.fused.lowering import lower, missing
from loopless.fused.operators import OPERATORS
from loopless.fused.tracing import flatten

BY_NAME = {case.name: case for case in CASES}
# The programs are tiny: most of the time would go into making them fast.
FAST_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
TOLERANCES = {"float64": 1e-12, "float32": 1e-5}  # of unit-scale numbers; others are equal


class Trial:
    """A case in one dtype: its inputs, what eager PyTorch makes of them, and its graph.

    The graph's inputs are the tensors of the case, then a weight for each result that has a
    gradient; its outputs are the results, then the gradients of their weighted sum.
    """

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.function = BY_NAME[name].function
        self.tensors = BY_NAME[name].tensors(dtype)
        results = [x for x in self.call(*self.tensors) if x.requires_grad]
        weights = [
            torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).view(x.shape) for x in results
        ]
        self.inputs = [*self.tensors, *weights]
        self.expected = self.call(*self.inputs)
        self.graph = flatten(self.call, *self.inputs)

    def call(self, *inputs):
        count = len(self.tensors)
        tensors = [
            x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs[:count]
        ]
        results = tree_leaves(self.function(*tensors))
        wanted = [x for x in tensors if x.requires_grad]
        if not inputs[count:] or not wanted:
            return results
        weighted = [x for x in results if x.requires_grad]
        gradients = torch.autograd.grad(weighted, wanted, inputs[count:], allow_unused=True)
        return [*results, *gradients]


trial = functools.cache(Trial)


def run(graph, tensors) -> list:
    """Run a lowered graph; a promotion that the table does not ask for is an error."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        arrays = [np.asarray(tensor) for tensor in tensors]
        return jax.jit(lower(graph)).lower(*arrays).compile(FAST_COMPILE)(*arrays)


def check_equal(results, expected) -> None:
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        if wanted is None:
            assert result is None
            continue
        wanted = wanted.detach().numpy()
        assert result.dtype == wanted.dtype
        tolerance = TOLERANCES.get(wanted.dtype.name, 0)
        np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operator_and_its_gradient_equal_pytorch(name):
    case = trial(name, torch.float64)
    assert missing(case.graph) == []
    check_equal(run(case.graph, case.inputs), case.expected)


@pytest.mark.parametrize("name", BY_NAME)
def test_dtypes_and_shapes_are_pytorchs_in_float32(name):
    """In float32 a Python number or a default dtype could promote; the values are those above."""
    case = trial(name, torch.float32)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        results = jax.eval_shape(lower(case.graph), *map(np.asarray, case.inputs))
    known = [None if x is None else (x.shape, x.dtype.name) for x in results]
    tensors = [None if x is None else x.detach().numpy() for x in case.expected]
    assert known == [None if x is None else (x.shape, x.dtype.name) for x in tensors]


def test_every_operator_of_the_table_is_tried():
    graphs = [trial(name, torch.float64).graph for name in BY_NAME]
    tried = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    tested_elsewhere = {"getitem", "aten._standard_gamma_grad.default"}
    assert set(OPERATORS) - tried == tested_elsewhere
