"""`reference.scan` against numbers worked out by hand, matrices and finite differences."""

import numpy as np
import pytest

from loopless.reference import affine_scan, affine_scan_gradients


@pytest.mark.parametrize(
    ("a", "b", "init", "reverse", "expected"),
    [
        ([0.5], [3.0], None, True, [3.0]),
        ([0.5], [3.0], 4.0, True, [5.0]),
        ([0.5], [3.0], 4.0, False, [5.0]),
        ([2.0, 3.0], [1.0, 1.0], None, True, [3.0, 1.0]),
        ([2.0, 3.0], [1.0, 1.0], None, False, [1.0, 4.0]),
        ([2.0, 3.0, -1.0], [1.0, 1.0, 1.0], 2.0, True, [-3.0, -2.0, -1.0]),
        ([2.0, 3.0, -1.0], [1.0, 1.0, 1.0], 2.0, False, [5.0, 16.0, -15.0]),
        ([2.0, 0.0, 5.0], [1.0, 7.0, 1.0], 9.0, True, [15.0, 7.0, 46.0]),
        (0.5, [4.0, 4.0, 4.0], None, True, [7.0, 6.0, 4.0]),
    ],
)
def test_affine_scan_gives_the_numbers_of_a_hand_calculation(a, b, init, reverse, expected):
    result = affine_scan(a, b, init, reverse=reverse)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.float64


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("time_axis", [0, 1, 2, -1, -2, -3])
def test_affine_scan_solves_its_linear_system_along_every_axis(time_axis, reverse):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 4, 6))
    a_last, b_last = np.moveaxis(a, time_axis, -1), np.moveaxis(b, time_axis, -1)
    init = rng.normal(size=b_last.shape[:-1])
    steps = b_last.shape[-1]
    # (I − A) x = b + (a · init at the row next to init), A holding a off the diagonal.
    system = np.eye(steps) - a_last[..., None] * np.eye(steps, k=1 if reverse else -1)
    right = b_last.copy()
    edge = -1 if reverse else 0
    right[..., edge] += a_last[..., edge] * init
    expected = np.linalg.solve(system, right[..., None])[..., 0]
    result = affine_scan(a, b, init, reverse=reverse, time_axis=time_axis)
    np.testing.assert_allclose(np.moveaxis(result, time_axis, -1), expected, rtol=1e-10, atol=1e-12)


def test_affine_scan_broadcasts_a_and_init():
    b = np.arange(12.0).reshape(3, 4)
    result = affine_scan([[1.0], [2.0], [3.0]], b, 1.0)
    expected = affine_scan(np.repeat([[1.0], [2.0], [3.0]], 4, axis=1), b, np.ones(4))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_affine_scan_of_nothing_is_nothing(shape):
    assert affine_scan(0.5, np.zeros(shape)).shape == shape
    a_bar, b_bar, init_bar = affine_scan_gradients(0.5, np.zeros(shape), None, np.zeros(shape))
    assert a_bar.shape == b_bar.shape == shape
    np.testing.assert_array_equal(init_bar, np.zeros(shape[1:]))


def test_affine_scan_leaves_its_inputs_alone_and_refuses_a_missing_axis():
    b = np.ones((2, 2))
    affine_scan(b, b, np.ones(2))
    np.testing.assert_array_equal(b, np.ones((2, 2)))
    with pytest.raises(ValueError, match="axis 2"):
        affine_scan(b, b, time_axis=2)


def test_gradients_give_the_numbers_of_a_hand_calculation():
    # x_1 = 3·2 + 1 = 7, x_0 = 2·7 + 1 = 15; the sum x_0 + x_1 has y = [1, 1 + 2].
    a_bar, b_bar, init_bar = affine_scan_gradients([2.0, 3.0], [1.0, 1.0], 2.0, [1.0, 1.0])
    np.testing.assert_array_equal(b_bar, [1.0, 3.0])
    np.testing.assert_array_equal(a_bar, [7.0, 6.0])
    assert init_bar == 9.0


@pytest.mark.parametrize("argument", [0, 1, 2], ids=["a", "b", "init"])
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("time_axis", [0, 1, -1])
def test_gradients_equal_central_differences(time_axis, reverse, argument):
    rng = np.random.default_rng(1)
    a, b, cotangent = rng.normal(size=(3, 4, 3))
    a[2, 1] = 0.0
    init = rng.normal(size=np.delete(b.shape, time_axis))
    options = {"reverse": reverse, "time_axis": time_axis}

    def loss_with(i, change):
        arguments = [a.copy(), b.copy(), init.copy()]
        arguments[argument][i] += change
        return np.sum(cotangent * affine_scan(*arguments, **options))

    gradient = affine_scan_gradients(a, b, init, cotangent, **options)[argument]
    # The loss is linear in each single number, so that a wide step gives the exact slope.
    slopes = [loss_with(i, 0.5) - loss_with(i, -0.5) for i in np.ndindex(gradient.shape)]
    np.testing.assert_allclose(gradient.ravel(), slopes, rtol=1e-10, atol=1e-12)
