"""PyTorch operations a call dispatches are a constant, whatever T and B are; so is its memory."""

import tracemalloc

import numpy as np
import pytest
import torch
from support.backends import TORCH
from support.situations import rollout
from torch.utils._python_dispatch import TorchDispatchMode

import loopless as ll
from loopless.arrays.scan import torch as torch_scan
from loopless.verify.contracts import ESTIMATORS


class Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def operations(estimator, shape, gradient):
    tensors = TORCH.arguments(rollout(shape, 0))
    if gradient:
        tensors["rewards"].requires_grad_()
    with Counter() as counter:
        outs = estimator.call(estimator.kernel, tensors)
        if gradient:
            torch.autograd.backward(outs, [torch.ones_like(x) for x in outs])
    return counter.count


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "forward and backward"])
@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_operations_do_not_grow_with_steps_or_columns(estimator, gradient):
    small = operations(estimator, (8, 3), gradient)
    assert operations(estimator, (500, 3), gradient) == small
    assert operations(estimator, (8, 300), gradient) == small


def test_the_counter_sees_a_loop():
    def loop(steps):
        x = torch.zeros(3)
        with Counter() as counter:
            for _ in range(steps):
                x = 0.9 * x + 1
        return counter.count

    assert loop(20) > loop(10) > 0


def test_the_blocked_scan_grows_with_the_logarithm_of_steps_only():
    def count(steps):
        a, b = torch.rand(2, 1, steps, 3)
        with Counter() as counter:
            torch_scan.blocked_scan(a, b, torch.zeros(1, 3), reverse=True, lagged=False)
        return counter.count

    one, two, three = count(32), count(32**2), count(32**3)
    assert three - two == two - one  # a constant for each further factor of 32


@pytest.mark.parametrize("shape", [(300, 200), (64, 2000), (4000, 15)])
def test_a_second_call_of_gae_allocates_no_array(shape):
    """Its outputs take the memory of the first call's, which nobody holds any more."""
    generator = np.random.default_rng(0)
    floats = [generator.standard_normal(shape, dtype=np.float32) for _ in range(3)]
    ends = [generator.random(shape) < 0.01 for _ in range(2)]
    ll.gae(*floats, *ends, gamma=0.99, lambda_=0.95)
    tracemalloc.start()
    try:
        ll.gae(*floats, *ends, gamma=0.99, lambda_=0.95)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000
