"""The loops of Q-learning, checked without the kernels: by hand, by differences, by refusals."""

import numpy as np
import pytest
from support.situations import call_loss, transitions

from loopless import reference

OPTIONS = ({"loss": "mse"}, {"loss": "huber"}, {"loss": "huber", "delta": 0.3})
NAN = np.nan


def target(next_q, **more):
    """The target of one sample with reward 0 and discount 1: the value of its next action."""
    keywords = {name: np.asarray([x]) for name, x in more.items()}
    (found,) = reference.q_targets([0.0], [False], np.array([next_q]), gamma=1.0, **keywords)
    return found


@pytest.mark.parametrize(
    ("online", "expected"),
    [([5, 1, 1], 10), ([1, 5, 1], 20), ([1, 5, 5], 20), ([0, 0, 0], 10), ([1, NAN, 9], 20)],
    ids=str,
)
def test_the_first_of_the_best_actions_is_chosen_and_nan_is_best(online, expected):
    assert target([10.0, 20.0, 30.0], next_q_online=online) == expected


def test_nan_is_the_largest_value():
    assert np.isnan(target([1.0, NAN, 5.0]))


def test_the_given_action_is_taken():
    assert target([10.0, 20.0, 30.0], next_actions=2) == 30.0


def test_a_terminal_sample_reads_nothing_but_its_reward():
    found = reference.q_targets(
        [1.5], [True], np.array([[NAN, np.inf]]), gamma=1.0, next_actions=np.array([-7])
    )
    assert found.tolist() == [1.5]


@pytest.mark.parametrize(("error", "expected"), [(0.5, 0.125), (1.0, 0.5), (-3.0, 2.5), (2.0, 1.5)])
def test_huber_by_hand(error, expected):
    loss, errors = reference.q_loss([[error, 9.0]], np.array([0]), [0.0], loss="huber")
    assert loss == expected
    assert errors.tolist() == [error]


def test_huber_with_another_delta_by_hand():
    loss, _ = reference.q_loss([[3.0], [-0.5]], np.array([0, 0]), [0.0, 0.0], loss="huber", delta=2)
    assert loss == (2 * (3 - 1) + 0.125) / 2


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_are_those_of_differences(options):
    data = transitions((2, 4), 3, 1)
    data["weights"][0, 1] = 0.0
    expected = np.zeros((2, 4, 3))
    for place in np.ndindex(expected.shape):
        around = []
        for step in (1e-6, -1e-6):
            q = data["q"].copy()
            q[place] += step
            losses, _ = call_loss(reference.q_loss, data | {"q": q}, **options)
            around.append(losses[place[0]])
        expected[place] = (around[0] - around[1]) / 2e-6
    found = call_loss(reference.q_loss_gradients, data, **options)
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("wrong", [-1, 3, 1.5])
def test_what_is_no_action_is_refused(wrong):
    data = transitions((4,), 3, 2)
    data["actions"] = np.array([0, 1, wrong, 2])
    with pytest.raises(ValueError, match="whole number from 0 to 2"):
        call_loss(reference.q_loss, data)


@pytest.mark.parametrize("name", ["actions", "targets", "weights"])
def test_what_does_not_fit_is_refused(name):
    data = transitions((4,), 3, 2)
    data[name] = data[name][:, None]
    with pytest.raises(ValueError, match="shape"):
        call_loss(reference.q_loss, data)


def test_an_unknown_loss_is_refused():
    with pytest.raises(ValueError, match="choose mse or huber"):
        call_loss(reference.q_loss, transitions((4,), 3, 2), loss="l1")
