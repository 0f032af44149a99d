"""The promises of the suite `avatarl`, on made-up times."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.timing import Budget
from suites.avatarl import plain as by
from suites.avatarl import suite
from suites.avatarl.losses import Losses
from suites.avatarl.plain import our_name as ours


def row(name, value):
    role = "ours" if name.startswith("loopless") else "reference"
    return Measurement("loss", "case", name, "some", role, value=value)


def judged(vocabulary, name, times):
    case = Losses(vocabulary, 4, 8)
    rows = suite.judge(case, [row(each, value) for each, value in times.items()])
    (found,) = [each for each in rows if each.contender == name]
    return [target.met for target in found.targets]


@pytest.mark.parametrize(
    ("library", "vocabulary", "loop", "form"),
    [("JAX", 65, 60, 6), ("PyTorch", 65, 20, 2), ("JAX", 50304, 5, 3), ("PyTorch", 50304, 5, 3)],
)
def test_each_variant_is_judged_beside_its_own_code(library, vocabulary, loop, form):
    others = {"original": (by.LOOPED, loop), "subset": (by.SUBSET, form), "full": (by.FULL, form)}
    for variant, (other, factor) in others.items():
        name = ours(library, variant)
        assert judged(vocabulary, name, {name: 1.0, other: factor + 0.1}) == [True]
        assert judged(vocabulary, name, {name: 1.0, other: factor - 0.1}) == [False]
    name = ours(library, "fixed")
    times = {by.LOOPED: loop + 0.1, by.SUBSET: form - 0.1, by.FULL: form + 0.1}
    assert judged(vocabulary, name, {name: 1.0, **times})[:3] == [True, False, True]


@pytest.mark.parametrize(
    ("library", "other", "limit"),
    [("JAX", by.JAX_ENTROPY, 2.8), ("PyTorch", by.TORCH_ENTROPY, 1.6)],
)
def test_cross_entropy_is_the_measure_at_a_large_vocabulary(library, other, limit):
    name = ours(library, "fixed")
    assert judged(50304, name, {name: limit - 0.1, other: 1.0})[-1] is True
    assert judged(50304, name, {name: limit + 0.1, other: 1.0})[-1] is False
    assert judged(65, name, {name: limit + 0.1, other: 1.0})[-1] is None


def test_another_vocabulary_is_stated_only():
    assert judged(12, ours("JAX", "full"), {ours("JAX", "full"): 1.0, by.FULL: 9.0}) == []


@pytest.mark.parametrize(("held", "met"), [(0.59, True), (0.61, False)])
def test_memory_is_less_than_six_tenths_of_an_array(monkeypatch, held, met):
    for name in ("in_jax", "probe"):
        monkeypatch.setattr(suite, name, lambda *_: held)
    result = Result("avatarl", {})
    suite.measure_memory(Losses(65, 4, 8), Contest(result, Budget(), lambda _: None))
    found = {row.contender: [x.met for x in row.targets] for row in result.measurements}
    assert list(found.values()) == [[met], [met], [], []]
    assert found[ours("JAX", "fixed")] == [met]
