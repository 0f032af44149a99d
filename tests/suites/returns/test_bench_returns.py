"""The suite `returns`, on shapes that take no time; and its targets, on made-up times."""

from dataclasses import replace

import numpy as np
import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result, load, save
from loopless.bench.timing import Budget
from suites.returns import suite
from suites.returns.peers import LAX_SCAN, RLOX, TIANSHOU_KERNEL
from suites.returns.plain import stream_arrays
from suites.returns.rollouts import label, random_rollout
from suites.returns.suite import BOTH, FLOOR, IN_NUMPY, JAX, NUMPY, STREAMS, TORCH

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)


def times(shape, **seconds):
    names = {"numpy": NUMPY, "jax": JAX, "tianshou": TIANSHOU_KERNEL, "scan": LAX_SCAN}
    roles = {"numpy": "ours", "jax": "ours", "tianshou": "peer", "scan": "yardstick"}
    names |= {"floor": FLOOR, "streams": STREAMS, "rlox": RLOX}
    roles |= {"floor": "floor", "streams": "floor", "rlox": "peer"}
    return [
        Measurement("shapes", label(shape), names[key], "some", roles[key], value=value)
        for key, value in seconds.items()
    ]


def verdicts(rows, contender):
    (row,) = [row for row in rows if row.contender == contender]
    return [target.met for target in row.targets]


@pytest.mark.slow
def test_a_tiny_run_measures_every_section_and_survives_json(tmp_path):
    result = Result("returns", {"threads": 1})
    said = []
    contest = Contest(result, SHORT, said.append, peers=False)
    tiny = {name: [(7, 3)] for name in ("shapes", "overhead", "gradients", "loops", "proposals")}
    suite.measure(tiny, contest)
    sections = {row.section for row in result.measurements}
    assert sections == {"shapes", "overhead", "gradients", "loops", "proposals"}
    ours = [row for row in result.measurements if row.role == "ours"]
    assert {row.status for row in ours} == {"ok"}
    assert all(row.value is not None for row in ours)
    assert not result.ours_is_wrong
    assert said[0] == "shapes: 7×3"
    save(result, tmp_path / "returns.json")
    assert load(tmp_path / "returns.json") == result


def test_gradients_are_checked(monkeypatch):
    import loopless as ll

    right = ll.gae
    monkeypatch.setattr(ll, "gae", lambda r, *rest, **more: right(r * 2, *rest, **more))
    result = Result("returns", {})
    suite.measure({"gradients": [(7, 3)]}, Contest(result, SHORT, lambda _: None))
    (row,) = [row for row in result.measurements if row.contender == BOTH]
    assert row.status == "disagrees"
    assert result.ours_is_wrong


def test_our_wrong_answer_makes_the_run_wrong(monkeypatch):
    import loopless as ll

    right = ll.gae
    monkeypatch.setattr(ll, "gae", lambda r, *rest, **more: right(r + 1, *rest, **more))
    result = Result("returns", {})
    Contest(result, SHORT, lambda _: None).run("shapes", random_rollout(7, 3), [IN_NUMPY])
    assert result.ours_is_wrong


@pytest.mark.parametrize(
    ("ours", "met"), [(1.0, [True, True]), (1.2, [True, False]), (2.5, [False, False])]
)
def test_targets_of_a_large_shape(ours, met):
    rows = suite.judge_shape(
        (128, 1024), times((128, 1024), numpy=ours, tianshou=9.0, scan=2.2, floor=0.5)
    )
    assert verdicts(rows, NUMPY) == met


@pytest.mark.parametrize(("ours", "met"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize("shape", [(2048, 64), (128, 1024)])
def test_target_of_warm_calls_is_what_moving_all_arrays_costs(shape, ours, met):
    rows = suite.judge_shape(shape, times(shape, numpy=ours, scan=9.0, streams=0.5))
    assert verdicts(rows, NUMPY) == [True, True, met]


def test_cold_calls_state_what_moving_all_arrays_costs():
    rows = suite.judge_floor((2048, 64), times((2048, 64), numpy=1.0, floor=0.5, streams=0.7))
    assert verdicts(rows, NUMPY) == [True, None]


def test_the_streaming_kernel_moves_all_arrays():
    rollout = random_rollout(7, 3)
    rewards, values, successors, terminated, truncated = (x.reshape(-1) for x in rollout.arrays)
    first, second = np.empty_like(rewards), np.empty_like(rewards)
    gamma, decay = np.float32(0.5), np.float32(0.25)
    flags = terminated, truncated
    stream_arrays(rewards, values, successors, *flags, gamma, decay, first, second)
    delta = rewards + gamma * np.where(terminated, 0, successors) - values
    expected = np.where(terminated | truncated, delta, decay * delta)
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, expected + values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ours", "met"), [(1.2, [True]), (1.3, [False])])
def test_target_of_streaming_is_the_floor(ours, met):
    rows = suite.judge_floor((128, 1024), times((128, 1024), numpy=ours, floor=0.5))
    assert verdicts(rows, NUMPY) == met


@pytest.mark.parametrize(
    ("ours", "met"), [(1.9, [True, True]), (2.1, [False, True]), (2.7, [False, False])]
)
def test_targets_of_one_long_chain_are_the_bare_kernel_and_rlox(ours, met):
    rows = suite.judge_shape(
        (2048, 1), times((2048, 1), numpy=ours, tianshou=1.0, rlox=2.0, scan=0.5, floor=0.1)
    )
    assert verdicts(rows, NUMPY) == met


@pytest.mark.parametrize(("ours", "met"), [(1.09, [True]), (1.11, [False])])
def test_target_of_jax_is_the_scan_by_hand(ours, met):
    assert verdicts(suite.judge_shape((25, 4), times((25, 4), jax=ours, scan=1.0)), JAX) == met


def test_targets_without_peers_are_not_judged():
    rows = suite.judge_shape((128, 64), times((128, 64), numpy=1.0))
    assert verdicts(rows, NUMPY) == [None]


def test_a_peer_with_wrong_answers_does_not_count():
    rows = times((128, 64), numpy=2.0, scan=1.0)
    rows[1] = replace(rows[1], status="disagrees")
    assert verdicts(suite.judge_shape((128, 64), rows), NUMPY) == [None]


def test_loop_ratio_is_promised_at_64_by_512_and_stated_elsewhere():
    for shape, met in (((512, 64), True), ((25, 16), None)):
        loop = Measurement("loops", label(shape), "loop", "some", "reference", value=150.0)
        ours = Measurement("loops", label(shape), TORCH, "loopless", "ours", value=1.0)
        (target,) = suite.judge_loops(shape, [ours, loop])[0].targets
        assert (target.measured, target.met) == (150.0, met)
