"""The specification's fixture and edge cases, on every road through the kernels."""

import inspect

import numpy as np
import pytest
import torch
from support.backends import BACKENDS, HALVES, JAX, NUMPY, TORCH
from support.compare import assert_close
from support.q_learning import ROADS, assert_alike
from support.situations import FIXTURE, call_loss, transitions

import loopless as ll
from loopless import reference
from loopless.verify.cases.batches import MEMBERS, call_targets

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_member = pytest.mark.parametrize("member", MEMBERS)
every_loss = pytest.mark.parametrize("loss", ["mse", "huber"])

# member, which network's values are bootstrapped from: targets, mean squares, smooth L1
ANSWERS = {
    "without a target": ("dqn", "next_q_online", [2.8, -1, 4.1, 2.9], 2.615, 1.005),
    "dqn": ("dqn", "next_q", [3.7, -1, 6.8, 7.4], 8.1725, 1.975),
    "double": ("double", "next_q", [1.45, -1, -1.3, 5.6], 3.138125, 0.9078125),
    "sarsa": ("sarsa", "next_q_online", [1.9, -1, 1.4, 2.9], 1.445, 0.57125),
}
DOUBLE = FIXTURE | {"targets": np.array(ANSWERS["double"][2])}
WEIGHTS = np.array([1, 0.757858, 0.574349, 0.435275])  # p = 1, 2, 4, 8 of 50; N = 100, β = 0.4


class Twin:
    """The loop, behind the face of a road."""

    def targets(self, data, member):
        return call_targets(reference.q_targets, data, member)

    def loss(self, data, **options):
        return call_loss(reference.q_loss, data, **options)

    def numpy(self, x):
        return x


with_twin = pytest.mark.parametrize("road", [*ROADS.values(), Twin()], ids=[*ROADS, "loop"])


@with_twin
@pytest.mark.parametrize("answer", ANSWERS)
def test_fixture_targets(road, answer):
    member, values, expected, _, _ = ANSWERS[answer]
    data = FIXTURE | {"next_q": FIXTURE[values]}
    assert_alike(road.numpy(road.targets(data, member)), expected)


@with_twin
@pytest.mark.parametrize("answer", ANSWERS)
@every_loss
def test_fixture_losses(road, answer, loss):
    _, _, targets, squares, smooth = ANSWERS[answer]
    got, errors = road.loss(FIXTURE | {"targets": np.array(targets)}, loss=loss)
    assert_alike(road.numpy(got), squares if loss == "mse" else smooth)
    assert_alike(road.numpy(errors), np.array([2.0, 0, 2, 5]) - targets)


@with_twin
@pytest.mark.parametrize(("loss", "expected"), [("mse", 1.867930), ("huber", 0.554177)])
def test_fixture_weighted_losses(road, loss, expected):
    got, errors = road.loss(DOUBLE | {"weights": WEIGHTS}, loss=loss)
    np.testing.assert_allclose(road.numpy(got), expected, atol=1e-6)  # printed to six places
    assert_alike(road.numpy(errors), [0.55, 1.0, 3.3, -0.6])


@with_twin
def test_fixture_priorities_follow_from_the_errors(road):
    _, errors = road.loss(DOUBLE)
    priorities = (np.abs(road.numpy(errors)) + 0.01) ** 0.6
    expected = [0.706176, 1.005988, 2.050675, 0.743358]
    np.testing.assert_allclose(priorities, expected, atol=1e-6)


@every_road
def test_huber_with_delta_1_is_pytorchs_smooth_l1(road):
    data = transitions((9,), 3, 0)
    del data["weights"]
    taken = np.take_along_axis(data["q"], data["actions"][:, None], -1)[:, 0]
    smooth = torch.nn.functional.smooth_l1_loss(
        torch.from_numpy(taken), torch.from_numpy(data["targets"])
    )
    assert_close(road.numpy(road.loss(data, loss="huber")[0]), smooth.numpy())


@every_road
@pytest.mark.parametrize("delta", [0.3, 1, 7.5, np.float32(2.0)])
def test_huber_is_pytorchs_for_every_delta(road, delta):
    data = transitions((9,), 3, 0)
    del data["weights"]
    taken = np.take_along_axis(data["q"], data["actions"][:, None], -1)[:, 0]
    expected = torch.nn.functional.huber_loss(
        torch.from_numpy(taken), torch.from_numpy(data["targets"]), delta=float(delta)
    )
    assert_close(road.numpy(road.loss(data, loss="huber", delta=delta)[0]), expected.numpy())


@every_road
@every_member
def test_e01_all_terminal_is_the_reward_for_every_member(road, member):
    data = transitions((6,), 3, 1, terminated=1.0)
    assert_alike(road.numpy(road.targets(data, member)), data["rewards"])


@every_road
@every_member
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_e02_a_terminal_rows_successor_is_not_read(road, member, value):
    data = transitions((12,), 3, 2, terminated=0.5)
    clean = road.numpy(road.targets(data, member))
    for name in ("next_q", "next_q_online"):
        data[name][data["terminated"]] = value
    targets = road.numpy(road.targets(data, member))
    np.testing.assert_array_equal(targets, clean)
    assert np.isfinite(road.numpy(road.loss(data | {"targets": targets})[0])).all()


@every_road
@pytest.mark.parametrize("wrong", [-1, 3, 99])
def test_e02_a_terminal_rows_next_action_is_not_read(road, wrong):
    data = transitions((12,), 3, 2, terminated=0.5)
    clean = road.numpy(road.targets(data, "sarsa"))
    data["next_actions"][data["terminated"]] = wrong
    np.testing.assert_array_equal(road.numpy(road.targets(data, "sarsa")), clean)


def test_e03_e04_there_is_no_flag_but_termination_to_end_a_bootstrap():
    # The fixture's third row is a truncated one, and its target bootstraps.
    names = set(inspect.signature(ll.q_targets).parameters)
    assert not names & {"truncated", "done", "dones", "discount"}


@pytest.mark.parametrize("cut", [(1.0, 0.9), (2.8, 0.81), (2.8 + 0.81 * 3, 0.729)], ids=str)
@every_road
def test_e05_e06_windows_bring_their_own_discount(road, cut):
    returns, discount = cut
    data = transitions((4,), 2, 3, terminated=0.0)
    data |= {"rewards": np.full(4, returns), "gamma": np.full(4, discount)}
    expected = returns + discount * data["next_q"].max(-1)
    assert_alike(road.numpy(road.targets(data)), expected)
    data["terminated"][:] = True
    np.testing.assert_array_equal(road.numpy(road.targets(data)), np.full(4, returns))


@every_road
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 1), (3, 5), ()], ids=str)
def test_discounts_spread_over_the_samples(road, shape):
    data = transitions((3, 5), 2, 4)
    data["gamma"] = np.random.default_rng(5).random(shape)
    expected = call_targets(
        reference.q_targets, data | {"gamma": np.broadcast_to(data["gamma"], (3, 5))}
    )
    assert_alike(road.numpy(road.targets(data)), expected)


@every_road
def test_e08_the_lowest_of_equal_actions_is_chosen(road):
    data = transitions((3,), 4, 5, terminated=0.0, gamma=1.0)
    data["next_q_online"] = np.array([[1.0, 2, 2, 2], [0, 0, 0, 0], [-3, -3, -7, -3]])
    data["rewards"] = np.zeros(3)
    expected = [data["next_q"][0, 1], data["next_q"][1, 0], data["next_q"][2, 0]]
    assert_alike(road.numpy(road.targets(data, "double")), expected)


@every_road
def test_e08_what_differs_in_float64_is_no_tie_beside_float32(road):
    data = transitions((1,), 3, 5, terminated=0.0)
    arguments = road.arguments(data, "float32")
    arguments["next_q_online"] = road.arguments(
        {"q": data["q"], "x": np.array([[1.0, 1.0 + 1e-12, 0.0]])}
    )["x"]
    got = road.numpy(road.call(call_targets, ll.q_targets, arguments, "double"))
    assert_close(got, data["rewards"] + 0.9 * data["next_q"][:, 1], "float32")


@every_road
def test_a_spoilt_value_does_not_hide(road):
    data = transitions((3,), 3, 6, terminated=0.0)
    data["next_q"][1, 1] = np.nan
    assert np.isnan(road.numpy(road.targets(data))).tolist() == [False, True, False]


@every_road
@pytest.mark.parametrize("shape", [(1,), (3, 1)], ids=str)
def test_e09_a_batch_of_one_keeps_its_shape(road, shape):
    data = transitions(shape, 3, 7)
    losses, errors = road.loss(data)
    assert np.shape(road.numpy(road.targets(data))) == shape
    assert tuple(losses.shape) == shape[:-1]
    assert tuple(errors.shape) == shape


@every_road
def test_e10_one_action_is_the_only_one(road):
    data = transitions((5,), 1, 8)
    expected = call_targets(reference.q_targets, data)
    for member in MEMBERS:
        assert_alike(road.numpy(road.targets(data, member)), expected)


@every_road
@pytest.mark.parametrize("scale", [1e8, -1e8])
def test_e11_large_rewards(road, scale):
    data = transitions((6,), 3, 9)
    data["rewards"] = scale * (1 + np.arange(6))
    targets = road.numpy(road.targets(data))
    np.testing.assert_allclose(targets, call_targets(reference.q_targets, data), rtol=1e-12)
    data["targets"] = targets
    got, expected = road.loss(data, loss="huber"), call_loss(reference.q_loss, data, loss="huber")
    np.testing.assert_allclose(road.numpy(got[0]), expected[0], rtol=1e-12)


@every_road
def test_e11_float32_absorbs_a_small_bootstrap(road):
    data = transitions((2,), 2, 10, terminated=0.0)
    data |= {"rewards": np.full(2, 1e8), "next_q": np.ones((2, 2)), "gamma": 0.99}
    assert road.numpy(road.targets(data, dtype="float32")).tolist() == [1e8, 1e8]


@every_road
def test_e12_a_nan_reward_shows_in_its_target_and_in_the_loss_of_its_batch(road):
    data = transitions((2, 4), 3, 11)
    data["rewards"][1, 2] = np.nan
    data["targets"] = road.numpy(road.targets(data))
    losses, errors = (road.numpy(x) for x in road.loss(data))
    assert np.argwhere(np.isnan(data["targets"])).tolist() == [[1, 2]]
    assert np.isnan(losses).tolist() == [False, True]
    assert np.argwhere(np.isnan(errors)).tolist() == [[1, 2]]


WRONG_ACTIONS = [
    (3, "int64"),
    (-1, "int64"),
    (-1, "int8"),
    (255, "uint8"),
    (2**32, "int64"),
    (2**32 + 1, "int64"),
    (1, "bool"),
]
LOOKED_AT = ("numpy", "torch", "torch, gradients")


def with_action(data, name, wrong, dtype):
    """One action in the middle replaced; booleans among one action instead of three."""
    actions = data[name].astype(dtype)
    actions[1, 2] = wrong
    if dtype == "bool":
        actions = np.zeros_like(actions)
        actions[1, 2] = True
        cut = {k: x[..., :1] for k, x in data.items() if np.ndim(x) == 3}
        return data | cut | {name: actions}
    return data | {name: actions}


@pytest.mark.parametrize(("wrong", "dtype"), WRONG_ACTIONS)
@pytest.mark.parametrize("road", LOOKED_AT)
def test_e13_an_action_out_of_range_is_refused_where_it_is_looked_at(road, wrong, dtype):
    data = with_action(transitions((2, 4), 3, 12), "actions", wrong, dtype)
    said = rf"\Aq_loss: actions holds {bool(wrong) if dtype == 'bool' else wrong} at \(1, 2\); "
    with pytest.raises(ValueError, match=said):
        ROADS[road].loss(data)


@pytest.mark.parametrize(("wrong", "dtype"), WRONG_ACTIONS)
@pytest.mark.parametrize("road", ["torch, operations", "torch, elsewhere"])
def test_e13_pytorch_itself_refuses_an_action_out_of_range(road, wrong, dtype):
    data = with_action(transitions((2, 4), 3, 12), "actions", wrong, dtype)
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        ROADS[road].loss(data)


@pytest.mark.parametrize(("wrong", "dtype"), WRONG_ACTIONS)
def test_e13_in_jax_an_action_out_of_range_is_nan_and_never_another_actions_value(wrong, dtype):
    data = with_action(transitions((2, 4), 3, 12), "actions", wrong, dtype)
    losses, errors = (JAX.numpy(x) for x in ROADS["jax"].loss(data))
    assert np.argwhere(np.isnan(errors)).tolist() == [[1, 2]]
    assert np.isnan(losses).tolist() == [False, True]


@pytest.mark.parametrize("road", ["numpy", "torch"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_e13_a_next_action_out_of_range_is_refused_where_it_is_looked_at(road, wrong):
    data = transitions((2, 4), 3, 12, terminated=0.0)
    data["next_actions"][1, 2] = wrong
    with pytest.raises(ValueError, match=rf"\Aq_targets: next_actions holds {wrong} at \(1, 2\); "):
        ROADS[road].targets(data, "sarsa")


@pytest.mark.parametrize("wrong", [-1, 3])
def test_e13_a_next_action_out_of_range_is_never_looked_up(wrong):
    data = transitions((2, 4), 3, 12, terminated=0.0)
    data["next_actions"][1, 2] = wrong
    with pytest.raises(RuntimeError, match="out of bounds"):
        ROADS["torch, operations"].targets(data, "sarsa")
    targets = JAX.numpy(ROADS["jax"].targets(data, "sarsa"))
    assert np.argwhere(np.isnan(targets)).tolist() == [[1, 2]]


@every_road
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["actions", "next_actions"])
def test_e14_integers_of_every_width_are_actions(road, dtype, name):
    data = transitions((6,), 2, 13)
    other = data | {name: data[name].astype(dtype)}
    for x, y in zip(road.loss(other), road.loss(data), strict=True):
        np.testing.assert_array_equal(road.numpy(x), road.numpy(y))
    got, expected = road.targets(other, "sarsa"), road.targets(data, "sarsa")
    np.testing.assert_array_equal(road.numpy(got), road.numpy(expected))


@every_road
@pytest.mark.parametrize(("dtype", "actions"), [("uint8", 200), ("uint8", 300), ("int8", 300)])
def test_e14_a_byte_indexes_actions_whose_number_it_cannot_hold(road, dtype, actions):
    data = transitions((4,), actions, 14)
    data["actions"] = np.array([0, 127, 100, 199 if dtype == "uint8" else 7], dtype)
    expected = call_loss(reference.q_loss, data)
    for x, y in zip(road.loss(data), expected, strict=True):
        assert_alike(road.numpy(x), y)


@every_road
@every_member
def test_e15_a_discount_of_0_leaves_the_reward_and_1_takes_nothing_off(road, member):
    data = transitions((6,), 3, 15, terminated=0.0)
    assert_alike(road.numpy(road.targets(data | {"gamma": 0}, member)), data["rewards"])
    value = road.numpy(road.targets(data | {"gamma": 1}, member)) - data["rewards"]
    judge = {"dqn": data["next_q"], "double": data["next_q_online"]}.get(member)
    actions = data["next_actions"] if judge is None else judge.argmax(-1)
    assert_close(value, np.take_along_axis(data["next_q"], actions[:, None], -1)[:, 0])


@every_road
def test_e16_with_one_network_double_is_dqn(road):
    data = transitions((6,), 3, 16)
    data["next_q_online"] = data["next_q"]
    np.testing.assert_array_equal(
        road.numpy(road.targets(data, "double")), road.numpy(road.targets(data, "dqn"))
    )


@every_road
@every_loss
def test_e17_a_weight_of_0_takes_a_sample_out_and_leaves_its_error(road, loss):
    data = transitions((8,), 3, 17)
    data["weights"] = np.ones(8)
    data["weights"][3] = 0.0
    got, errors = (road.numpy(x) for x in road.loss(data, loss=loss))
    rest = {k: np.delete(x, 3, 0) for k, x in data.items() if isinstance(x, np.ndarray)}
    others, _ = call_loss(reference.q_loss, rest, loss=loss)
    assert_close(got, others * 7 / 8)  # the divisor stays the number of samples
    assert_alike(errors, call_loss(reference.q_loss, data)[1])
    assert abs(errors[3]) > 0.1


@every_road
@every_loss
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_e17_a_sample_of_weight_0_may_hold_anything(road, loss, poison):
    data = transitions((8,), 3, 18)
    data["weights"][3] = 0.0
    clean = road.numpy(road.loss(data, loss=loss)[0])
    data["targets"][3] = poison
    np.testing.assert_array_equal(road.numpy(road.loss(data, loss=loss)[0]), clean)


@every_road
@every_loss
def test_e18_without_any_weight_the_loss_is_0(road, loss):
    data = transitions((2, 5), 3, 19)
    data["weights"][:] = 0.0
    np.testing.assert_array_equal(road.numpy(road.loss(data, loss=loss)[0]), [0.0, 0.0])


def spaced(x, backend):
    """The same numbers, every other one of a larger array, in PyTorch or NumPy."""
    if not isinstance(x, np.ndarray):
        return x
    wide = np.stack([x, np.full_like(x, 99)], axis=-1)
    return backend.array(wide)[..., 0]


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
@every_member
def test_e27_strided_views_are_taken_as_they_are(backend, member):
    data = transitions((3, 6), 4, 20)
    views = {name: spaced(x, backend) for name, x in data.items()}
    expected = call_targets(reference.q_targets, data, member)
    assert_alike(backend.numpy(call_targets(ll.q_targets, views, member)), expected)
    expected = call_loss(reference.q_loss, data, loss="huber")
    for x, y in zip(call_loss(ll.q_loss, views, loss="huber"), expected, strict=True):
        assert_alike(backend.numpy(x), y)


def test_e27_transposed_and_reversed_arrays_are_taken_as_they_are():
    data = transitions((6, 3), 4, 20)
    expected = call_loss(reference.q_loss, data)
    views = {
        name: np.asfortranarray(x)[::-1] if isinstance(x, np.ndarray) else x
        for name, x in data.items()
    }
    got = call_loss(ll.q_loss, views)
    assert_close(got[0], expected[0][::-1])
    assert_close(got[1], expected[1][::-1])


@every_road
@every_loss
def test_e29_the_mean_of_k_losses_is_the_mega_batchs(road, loss):
    data = transitions((4, 5), 3, 21)
    flat = {k: x.reshape(20, *x.shape[2:]) for k, x in data.items() if isinstance(x, np.ndarray)}
    losses, errors = road.loss(data, loss=loss)
    whole, flat_errors = road.loss(flat, loss=loss)
    assert tuple(losses.shape) == (4,)
    assert_close(road.numpy(losses).mean(), road.numpy(whole))
    assert_close(road.numpy(errors).ravel(), road.numpy(flat_errors))


@every_road
def test_e29_each_batch_has_the_loss_that_it_has_alone(road):
    data = transitions((3, 5), 3, 22)
    losses, _ = road.loss(data, loss="huber")
    alone = {k: x[1] for k, x in data.items() if isinstance(x, np.ndarray)}
    assert_close(road.numpy(losses)[1], road.numpy(road.loss(alone, loss="huber")[0]))


@every_road
@every_member
def test_e30_permuted_samples_give_permuted_results(road, member):
    data = transitions((9,), 3, 23)
    order = np.random.default_rng(24).permutation(9)
    permuted = {k: x[order] for k, x in data.items() if isinstance(x, np.ndarray)}
    permuted["gamma"] = data["gamma"]
    targets = road.numpy(road.targets(data, member))
    np.testing.assert_array_equal(road.numpy(road.targets(permuted, member)), targets[order])
    (loss, errors), (other, others) = road.loss(data), road.loss(permuted)
    np.testing.assert_array_equal(road.numpy(others), road.numpy(errors)[order])
    assert_close(road.numpy(other), road.numpy(loss))


@every_road
def test_one_sample_without_a_batch_has_a_target(road):
    data = {k: x[0] for k, x in transitions((3,), 3, 25).items() if k in ("next_q",)}
    data |= {"rewards": np.array(0.5), "terminated": np.array(False), "gamma": 0.9}
    data["q"] = data["next_q"]
    targets = road.targets(data)
    assert_alike(road.numpy(targets), 0.5 + 0.9 * data["next_q"].max())


@every_road
def test_no_sample_has_no_target_and_no_batch_no_loss(road):
    assert np.shape(road.numpy(road.targets(transitions((0,), 3, 26)))) == (0,)
    losses, errors = road.loss(transitions((0, 4), 3, 27))
    assert tuple(losses.shape) == (0,)
    assert tuple(errors.shape) == (0, 4)


# Precision


@pytest.mark.parametrize(
    ("backend", "half"), [(b, half) for b in BACKENDS for half in HALVES[b.name]], ids=str
)
@every_member
def test_half_precision_is_computed_in_float32_and_rounded_once(backend, half, member):
    data = transitions((3, 50), 4, 28)
    halves, floats = backend.arguments(data, half), backend.arguments(data, half)
    for name, x in floats.items():
        if backend.owns(x) and backend.dtype(x) == half:
            floats[name] = x.astype("float32") if backend is not TORCH else x.float()
    got = call_targets(ll.q_targets, halves, member), *call_loss(ll.q_loss, halves, loss="huber")
    wide = call_targets(ll.q_targets, floats, member), *call_loss(ll.q_loss, floats, loss="huber")
    for x, y in zip(got, wide, strict=True):
        assert backend.dtype(x) == half
        assert backend.dtype(y) == "float32"
        rounded = y.to(getattr(torch, half)) if backend is TORCH else y.astype(x.dtype)
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(rounded))


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_are_the_callers_kind(backend, dtype):
    arguments = backend.arguments(transitions((2, 4), 3, 29), dtype)
    outs = call_targets(ll.q_targets, arguments), *call_loss(ll.q_loss, arguments)
    for x in outs:
        assert backend.owns(x)
        assert backend.dtype(x) == dtype


@every_road
def test_mixed_precision_gives_the_wider_of_the_two_that_count(road):
    data = transitions((4,), 3, 30)
    narrow, wide = road.arguments(data, "float32"), road.arguments(data, "float64")
    backend = road.backend

    def targets(**other):
        return backend.dtype(road.call(call_targets, ll.q_targets, narrow | other, "double"))

    def losses(**other):
        return {backend.dtype(x) for x in road.call(call_loss, ll.q_loss, narrow | other)}

    assert targets(next_q=wide["next_q"]) == "float64"
    assert targets(rewards=wide["rewards"]) == "float64"
    assert targets(next_q_online=wide["next_q_online"]) == "float32"
    assert losses(targets=wide["targets"]) == {"float64"}
    assert losses(q=wide["q"]) == {"float64"}
    assert losses(weights=wide["weights"]) == {"float32"}
