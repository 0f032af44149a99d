"""The compiled steps of ALLO beside plain ones on the same states; known bugs are caught."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from allo_cases import Case, tiny
from plain_allo import Plain

from loopless.kernels.laplacian import duals as laplacian_duals
from loopless.kernels.laplacian import losses as laplacian
from loopless.train.allo import algorithm as allo
from loopless.train.allo.algorithm import Algorithm
from loopless.train.allo.data import Batch, Sampler

pytestmark = pytest.mark.slow

STEPS = 200
KINDS = {
    "half": {"steps": STEPS, "learning_rate_end": 0.0},
    "full": {"scale": "full", "dual_limit": 0.8},
    "ggdo": {"objective": "ggdo"},
    "half, by batches, gated, perturbed": {
        "encode": "batches",
        "gate_threshold": 0.9,
        "perturbation": "exponential",
    },
}


def beside_plain(config, steps=STEPS):
    """The graph's losses, final weights and duals: compiled, and plain."""
    case = Case(config)
    algorithm, learner = case.algorithm, case.learner()
    plain = Plain(config, case.layers(learner), case.barrier)

    def one(learner, step):
        drawn = algorithm.sampler.draw(case.data, jax.random.fold_in(case.key, step))
        learner, report = algorithm.update(learner, jnp.asarray(case.table), drawn, step)
        return learner, (report.graph_loss, drawn)

    many = jax.jit(lambda learner: jax.lax.scan(one, learner, jnp.arange(steps)))
    learner, (losses, drawn) = many(learner)
    streams = [None if rows is None else np.asarray(rows) for rows in drawn]
    rows = [[None if x is None else x[i] for x in streams] for i in range(steps)]
    expected = [plain.step(case.table, some) for some in rows]
    return (losses, case.layers(learner), learner.multipliers), (expected, plain)


def agree(ours, theirs):
    (losses, layers, multipliers), (expected, plain) = ours, theirs
    np.testing.assert_allclose(losses, expected, rtol=1e-8, atol=1e-10)
    for mine, other in zip(layers, plain.layers, strict=True):
        np.testing.assert_allclose(mine[0], other[0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(mine[1], other[1], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(multipliers.duals, plain.duals, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(multipliers.barrier, plain.barrier, rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_steps_are_the_plain_pipeline_s(kind):
    agree(*beside_plain(tiny(**KINDS[kind])))


# --- known bugs of a step; those of the losses alone are in `verify.mutants.laplacian` -----------


def same_batch_twice(patch):
    def draw(self, data, key):
        drawn = right_draw(self, data, key)
        return drawn._replace(others=drawn.states)

    right_draw = Sampler.draw
    patch.setattr(Sampler, "draw", draw)


def dual_sign(patch):
    def updates(*args, **options):
        return laplacian_duals.allo_updates(*args, **options | {"dual_rate": -0.05})

    patch.setattr(allo, "allo_updates", updates)


def factor_two_lost(patch):
    right = laplacian.allo_loss

    def loss(now, later, others, duals, barrier, **options):
        return right(now, later, others, duals, barrier / 2, **options)

    patch.setattr(allo, "allo_loss", loss)


def forgotten_integral(patch):
    def updates(multipliers, *args, **options):
        found = laplacian_duals.allo_updates(multipliers, *args, **options)
        return found._replace(integral=multipliers.integral)

    patch.setattr(allo, "allo_updates", updates)


def rows_of_a_batch_mixed(patch):
    right = Algorithm.loss

    def loss(self, weights, multipliers, table, drawn):
        return right(self, weights, multipliers, table, drawn._replace(later=drawn.later[::-1]))

    patch.setattr(Algorithm, "loss", loss)


MUTANTS = [dual_sign, factor_two_lost, forgotten_integral, rows_of_a_batch_mixed]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_known_bug_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        agree(*beside_plain(tiny(), steps=8))


def batches_are_independent():
    """Over many steps, no batch tells anything about another, and pairs come of their kernel."""
    case = Case(tiny(batch_size=200, scale="full"))
    keys = jax.random.split(jax.random.key(3), 20)
    drawn = Batch(*jax.jit(jax.vmap(lambda key: case.algorithm.sampler.draw(case.data, key)))(keys))
    centred = [np.asarray(x, np.float64).ravel() - np.mean(x) for x in drawn]
    products = np.corrcoef([*centred])
    np.testing.assert_array_less(np.abs(products[np.triu_indices(4, 1)][[1, 2, 3, 4, 5]]), 0.06)
    assert products[0, 1] > 0.1  # a state and a later one


def test_batches_are_independent(monkeypatch):
    batches_are_independent()
    same_batch_twice(monkeypatch)
    with pytest.raises(AssertionError):
        batches_are_independent()


def test_the_eigenvalues_are_of_the_kernel_and_not_of_the_successor_representation():
    case = Case(tiny(dual_start=0.0))
    learner = case.learner()
    multipliers = learner.multipliers._replace(
        duals=jnp.diag(jnp.array([0.0, -0.2, -0.6])), barrier=jnp.float64(2.0)
    )
    learner = learner._replace(multipliers=multipliers, errors=jnp.diag(jnp.array([0.1, 0, -0.1])))
    found = case.algorithm.eigenvalues(learner)
    np.testing.assert_allclose(found, [-0.2, 0.1, 0.5], atol=1e-12)
    full = replace(case.algorithm, config=tiny(scale="full", dual_start=0.0))
    np.testing.assert_allclose(full.eigenvalues(learner), [-0.1, 0.05, 0.25], atol=1e-12)


@pytest.mark.parametrize("encode", ["states", "batches"])
def test_errors_are_averaged_over_all_states_or_over_batches(encode):
    rates = {"learning_rate": 1e-12, "learning_rate_end": 1e-13, "dual_rate": 0.0}
    case = Case(tiny(encode=encode, **rates))
    key, table, learner = case.key, jnp.asarray(case.table), case.learner()
    after, _ = jax.jit(case.algorithm.chunk)(learner, table, case.data, key, 0, np.int32(400))
    learned = np.asarray(case.algorithm.evaluate(learner, table)["learned"])
    exact = learned.T @ (np.asarray(case.data.law)[:, None] * learned) - np.eye(3)
    exact = exact if encode == "states" else np.tril(exact)
    scale = np.abs(exact + np.eye(3)).max()
    np.testing.assert_allclose(after.errors, exact, atol=scale * {"states": 1e-6}.get(encode, 0.1))


def test_what_is_not_finite_leaves_everything_as_it_was():
    case = Case(tiny())
    before = case.learner()
    drawn = Batch(*jnp.zeros((3, 16), jnp.int32))
    bad = jnp.full(case.table.shape, jnp.nan)
    update = jax.jit(case.algorithm.update)
    after, _ = update(before, bad, drawn, jnp.int32(0))
    assert bool(after.failed)
    assert int(after.skipped) == 1
    still, _ = update(after, jnp.asarray(case.table), drawn, jnp.int32(1))
    same = before._replace(failed=still.failed, skipped=still.skipped)
    jax.tree.map(np.testing.assert_array_equal, still, same)


def test_so_do_errors_that_are_not_finite():
    case = Case(tiny(encode="states"))
    before, far = case.learner(), np.asarray(case.table, np.float64)
    drawn = Batch(*jnp.zeros((3, 16), jnp.int32))
    far[-1] = 1e200  # a state that was not drawn: its features are finite, their products are not
    update = jax.jit(case.algorithm.update)
    sound, _ = update(before, far, drawn, jnp.int32(0))  # which asks for no errors of all states
    assert not sound.failed
    after, _ = update(before, far, drawn, jnp.int32(0), case.data.law)
    same = before._replace(failed=np.bool_(True), skipped=np.int32(1))
    jax.tree.map(np.testing.assert_array_equal, after, same)


def test_no_step_copies_the_weights():
    case = Case(tiny(encode="states", hidden=(64, 64)))
    learner, table = case.learner(), jnp.asarray(case.table)
    chunk = jax.jit(case.algorithm.chunk)
    text = chunk.lower(learner, table, case.data, case.key, 0, np.int32(9)).compile().as_text()
    inside, size = text[: text.index("ENTRY")].splitlines(), learner.weights.size
    assert not [line for line in inside if f"f64[{size}]" in line and " copy(" in line]


def test_shuffled_outputs_are_the_same_in_another_order():
    case = Case(tiny())
    learner = case.learner()
    learner = learner._replace(moments=learner.moments._replace(mu=learner.weights))
    shuffled = case.algorithm.shuffle_outputs(learner, jax.random.key(5))
    before, after = (np.asarray(case.algorithm.evaluate(x, case.table)["learned"]).T
                     for x in (learner, shuffled))  # fmt: skip
    order = [int(np.abs(before - row).sum(1).argmin()) for row in after]
    assert sorted(order) == [0, 1, 2] != order
    np.testing.assert_allclose(after, before[order])
    np.testing.assert_array_equal(shuffled.moments.mu, shuffled.weights)
    jax.tree.map(np.testing.assert_array_equal, shuffled.multipliers, learner.multipliers)


def test_the_cheaper_way_of_encoding_is_taken():
    def way(**options):
        case = tiny(**options)
        table = np.zeros((100, 2), np.float32)
        return allo.build(case, None, table).encodes_all

    assert way(batch_size=64)
    assert not way(batch_size=40)
    assert way(batch_size=40, scale="full")
    assert way(batch_size=1, encode="states")
    assert not way(batch_size=500, encode="batches")
