"""LOOPLESS_NATIVE=0 leaves everything to XLA, and the results are the same within rounding."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from loopless.arrays import xla_cpu

PROGRAM = """
import json, os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # on several cores XLA keeps some of it
import jax, jax.numpy as jnp, numpy as np
import loopless as ll

texts, results = [], {}

def note(name, function, *arguments):
    lowered = jax.jit(function).lower(*arguments)
    texts.append(lowered.as_text())
    out = lowered.compile()(*arguments)
    results[name] = [float(jnp.abs(x).astype(jnp.float64).sum()) for x in jax.tree.leaves(out)
                     if jnp.issubdtype(x.dtype, jnp.floating)]

random = np.random.default_rng(0)
z, c = (jnp.asarray(random.normal(size=(300, 65)), jnp.float32) for _ in range(2))
y = jnp.asarray(random.integers(0, 65, 300))
note("avatarl_loss", jax.value_and_grad(lambda z: ll.avatarl_loss(z, c, y, top_k=4)[0]), z)

from loopless.nets.q_network import QNetwork
from loopless.nets.mlp import as_vector
from loopless.train.engine.optimizer import Optimizer

def update(network, loss):
    optimizer = Optimizer()
    weights, rebuild = as_vector(network)
    def step(weights, moments):
        value, gradient = jax.value_and_grad(lambda w: loss(rebuild(w)))(weights)
        return value, optimizer.step(weights, moments, gradient, 1e-3, jnp.asarray(True))
    return step, weights, optimizer.init(weights)

obs = jnp.asarray(random.normal(size=(128, 8)), jnp.float32)
actions = jnp.asarray(random.integers(0, 64, 128))
targets = jnp.asarray(random.normal(size=128), jnp.float32)
network = QNetwork((8,), 64, (256, 256), jax.random.key(0))
note("dqn", *update(network, lambda net: ll.q_loss(net(obs), actions, targets)[0]))

duals, barrier = jnp.zeros((64, 64), jnp.float32), jnp.float32(0.5)
others = obs[::-1]
note("allo", *update(network, lambda net: ll.allo_loss(
    net(obs), net(obs + 0.1), net(others), duals, barrier)[0]))

from loopless.nets.gpt.model import GPT, Size
size = Size(layers=1, heads=2, width=64)
tokens = jnp.asarray(random.integers(0, 65, (4, 33)))
gpt = GPT(65, 32, size, jax.random.key(1))
note("lm", *update(gpt, lambda net: ll.cross_entropy(net(tokens[:, :-1]), tokens[:, 1:])))
print(json.dumps([sorted({name for text in texts for name in
    ("loopless_product", "loopless_avatarl_float32") if name in text}), results]))
"""


def run(setting: str) -> list:
    environment = os.environ | {"LOOPLESS_NATIVE": setting, "JAX_ENABLE_X64": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_updates_and_losses_are_the_same_with_and_without():
    (used, with_ours), (unused, without) = run("1"), run("0")
    assert used == ["loopless_avatarl_float32", "loopless_product"]
    assert unused == []
    assert with_ours.keys() == without.keys() == {"avatarl_loss", "dqn", "allo", "lm"}
    for name, values in with_ours.items():
        np.testing.assert_allclose(values, without[name], rtol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("setting", "on"),
    [("1", set(xla_cpu.PARTS)), ("0", set()), ("product", {"product"}),
     (" avatarl , product ", {"avatarl", "product"})],
)  # fmt: skip
def test_the_variable_says_what_is_on(monkeypatch, setting, on):
    monkeypatch.setenv("LOOPLESS_NATIVE", setting)
    assert {part for part in xla_cpu.PARTS if xla_cpu.is_on(part)} == on


def test_everything_is_on_where_nothing_is_said(monkeypatch):
    monkeypatch.delenv("LOOPLESS_NATIVE", raising=False)
    assert all(map(xla_cpu.is_on, xla_cpu.PARTS))


@pytest.mark.parametrize("setting", ["", "yes", "product,gemm"])
def test_a_part_that_does_not_exist_is_refused(monkeypatch, setting):
    monkeypatch.setenv("LOOPLESS_NATIVE", setting)
    with pytest.raises(ValueError, match=r"LOOPLESS_NATIVE.*product"):
        xla_cpu.is_on("product")
