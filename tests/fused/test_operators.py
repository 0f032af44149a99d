"""Every operator of the lowering table gives what eager PyTorch gives, and so do its gradients."""

import jax
import numpy as np
import pytest
import torch
from support.lowered import check_equal, run
from support.operator_cases import CASES
from torch.utils._pytree import tree_leaves

from loopless.fused.lowering import lower, missing
from loopless.fused.operators import OPERATORS
from loopless.fused.tracing import flatten

pytestmark = pytest.mark.slow

BY_NAME = {case.name: case for case in CASES}


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


@pytest.mark.parametrize("name", BY_NAME)
def test_an_operator_and_its_gradient_equal_pytorch(name):
    trial = Trial(name, torch.float64)
    assert missing(trial.graph) == []
    check_equal(run(trial.graph, trial.inputs), trial.expected)


@pytest.fixture(scope="module")
def in_float32():
    """Return, for each case, the operators of its graph and the dtypes that it has and should have.

    In float32 a Python number or a default dtype could promote; the values are tested above.
    """
    cases = {}
    for name in BY_NAME:
        trial = Trial(name, torch.float32)
        with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
            results = jax.eval_shape(lower(trial.graph), *map(np.asarray, trial.inputs))
        expected = [None if x is None else x.detach().numpy() for x in trial.expected]
        operators = {str(node.target) for node in trial.graph.graph.nodes}
        cases[name] = operators, _describe(results), _describe(expected)
    return cases


def _describe(arrays) -> list:
    return [None if x is None else (x.shape, x.dtype.name) for x in arrays]


def test_dtypes_and_shapes_are_pytorchs_in_float32(in_float32):
    assert {name: case[1:] for name, case in in_float32.items() if case[1] != case[2]} == {}


def test_every_operator_of_the_table_is_tried(in_float32):
    tried = set().union(*(operators for operators, *_ in in_float32.values()))
    assert set(OPERATORS) - tried == {"getitem", "aten._standard_gamma_grad.default"}
