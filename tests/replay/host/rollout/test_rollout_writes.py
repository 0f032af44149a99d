"""What `add` takes and stores: read-only, reversed, cast without loss; and what it leaves alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from support.rollouts import (
    STEP,
    both_libraries,
    make,
)


@both_libraries
def test_no_envs_add_nothing(library):
    buffer = make(library)
    nobody = {name: value[:0] for name, value in STEP.items() if name != "obs"}
    nobody["obs"] = {name: value[:0] for name, value in STEP["obs"].items()}
    buffer.add(envs=[], **nobody)
    assert len(buffer) == 0


@both_libraries
def test_inputs_may_be_read_only_reversed_or_need_gradients(library):
    buffer = make(library)
    frozen = np.arange(6, dtype=np.float32).reshape(3, 2)[::-1]
    frozen.flags.writeable = False
    values = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    step = STEP | {"obs": {"near": frozen, "far": np.arange(3.0)[::-1]}, "values": values}
    buffer.add(**step)
    assert buffer["obs"]["near"][0].tolist() == [[4, 5], [2, 3], [0, 1]]
    assert buffer["values"].tolist() == [[1, 2, 3]]
    assert library == "numpy" or not buffer["values"].requires_grad
    buffer["values"][:] = 0
    buffer["obs"]["near"][:] = 9
    assert values.tolist() == [1, 2, 3]
    assert frozen.tolist() == [[4, 5], [2, 3], [0, 1]]


@both_libraries
def test_swapped_bytes_and_numpy_numbers_are_read_right(library):
    buffer = make(library, fields={"x": ((), "float32")})
    swapped = np.array([1.0, 2.0, 3.0], ">f4")
    flags = {"terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)}
    buffer.add(x=swapped, rewards=swapped, values=swapped, **flags)
    one = {name: np.float32(4) for name in ("x", "rewards", "values")}
    buffer.add(env=1, terminated=np.True_, truncated=np.False_, **one)
    for name in one:
        assert buffer[name].tolist() == [[1, 2, 3], [0, 4, 0]], name
    assert buffer["terminated"].tolist()[1] == [False, True, False]


@both_libraries
def test_arrays_of_the_very_dtype_are_copied(library):
    buffer = make(library, fields={})
    arrays = {"rewards": np.ones(3, "f4"), "values": np.ones(3, "f4")}
    arrays |= {"terminated": np.zeros(3, bool), "truncated": np.zeros(3, bool)}
    if library == "torch":
        arrays = {name: torch.from_numpy(array) for name, array in arrays.items()}
    buffer.add(**arrays)
    for array in arrays.values():
        array[:] = array == 0
    assert buffer["rewards"].tolist() == [[1, 1, 1]]
    assert buffer["terminated"].tolist() == [[False, False, False]]


@both_libraries
def test_casts_without_loss_are_made(library):
    buffer = make(library, fields={"wide": ((), "int64"), "real": ((), "float32")})
    flags = {"terminated": [0, 1, 0], "truncated": np.zeros(3, np.uint8)}
    wide, real = np.array([1, 2, 3], np.int32), torch.ones(3, dtype=torch.bfloat16)
    buffer.add(wide=wide, real=real, rewards=[1, 2, 3], values=np.ones(3), **flags)
    buffer.add(env=0, wide=4, real=0.1, rewards=1, values=2, terminated=True, truncated=0)
    assert buffer["wide"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert buffer["real"][1, 0] == np.float32(0.1)
    assert buffer["terminated"].tolist() == [[False, True, False], [True, False, False]]


@pytest.mark.slow
def test_a_numpy_buffer_does_not_import_torch():
    code = (
        "import sys; from loopless.replay import RolloutBuffer as R; b = R(2, 1, {}); "
        "b.add(rewards=[1.], values=[0.], terminated=[True], truncated=[False]); "
        "b.finish(gamma=1.0, lambda_=1.0); list(b.minibatches()); b.restore(b.state()); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
