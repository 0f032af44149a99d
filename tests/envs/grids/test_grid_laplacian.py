"""Exact eigenpairs, eigenvalues and hitting times beside sums written out."""

import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.envs.grids.laplacian import (
    eigenpairs,
    episode_pairs,
    geometric_pairs,
    hitting_times,
    hitting_times_of_eigenpairs,
    kernel_eigenvalues,
    stationary,
    step_eigenvalues,
    truncated_eigenvalues,
)
from loopless.envs.grids.world import make_grid

ROOMS = make_grid("GridRoom-4")
DOORS = make_grid("GridRoom-4", doors=5)
SMALL = make_grid("DR,.,.\n.,X,.\n.,.,.")  # one door, eight states
WALK = ROOMS.transition_matrix()


def pair_law(transitions, starts, gamma, length):
    """The joint law of the pairs, one start and one gap at a time."""
    joint, visits = np.zeros_like(transitions), starts
    for t in range(length):
        powers = np.eye(len(transitions))
        for k in range(1, length - t + 1):
            powers = powers @ transitions
            chance = (1 - gamma) * gamma ** (k - 1) / (1 - gamma ** (length - t))
            joint += visits[:, None] * chance * powers / length
        visits = visits @ transitions
    return joint


def loss(joint, v):
    """½ E (v(s) − v(s'))², pair by pair."""
    joint, v = joint.tolist(), v.tolist()
    return sum(
        0.5 * chance * (v[s] - v[after]) ** 2
        for s, row in enumerate(joint)
        for after, chance in enumerate(row)
    )


def test_the_geometric_kernel_is_the_sum_of_its_powers():
    matrix, expected, power = SMALL.transition_matrix(), 0, np.eye(SMALL.states)
    for k in range(1, 400):
        power = power @ matrix
        expected = expected + (1 - 0.9) * 0.9 ** (k - 1) * power
    np.testing.assert_allclose(geometric_pairs(matrix, 0.9).kernel, expected, atol=1e-14)


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("length", [1, 7, 60])
def test_pairs_of_episodes_follow_the_law_of_the_buffer(gamma, length):
    matrix = SMALL.transition_matrix()
    kernel, weights = episode_pairs(matrix, SMALL.starts, gamma, length)
    expected = pair_law(matrix, SMALL.starts, gamma, length)
    np.testing.assert_allclose(weights[:, None] * kernel, expected, atol=1e-15)


@pytest.mark.parametrize("world", [ROOMS, DOORS, SMALL], ids=["rooms", "doors", "small"])
@pytest.mark.parametrize("length", [20, 300])
def test_eigenvectors_are_orthonormal_and_their_eigenvalues_are_their_losses(world, length):
    matrix = world.transition_matrix()
    pairs = episode_pairs(matrix, world.starts, 0.9, length)
    values, vectors, _, weights = eigenpairs(pairs)
    np.testing.assert_allclose(vectors.T * weights @ vectors, np.eye(world.states), atol=1e-10)
    joint = weights[:, None] * pairs.kernel
    for k in range(3):
        assert loss(joint, vectors[:, k]) == pytest.approx(values[k], abs=1e-12)
    np.testing.assert_allclose(vectors[:, 0], 1, atol=1e-9)
    assert abs(values[0]) < 1e-12
    assert (np.diff(values) > -1e-12).all()


def test_a_stationary_start_makes_both_laplacians_one_and_another_does_not():
    matrix = DOORS.transition_matrix()
    pairs = geometric_pairs(matrix, 0.9, stationary(matrix))
    both = [eigenpairs(pairs, operator=name).values for name in ("loss", "kernel")]
    np.testing.assert_allclose(*both, atol=1e-12)
    pairs = episode_pairs(matrix, DOORS.starts, 0.9, 50)
    drawn, other = (eigenpairs(pairs, operator=name) for name in ("loss", "kernel"))
    assert other.values[0] < -1e-4
    cosines = np.abs((drawn.vectors * drawn.weights[:, None] * other.vectors).sum(0))
    assert cosines[1] < 0.99


def test_symmetric_and_self_adjoint_are_two_things():
    """eigh of D^½ L D^−½, not of L itself: with doors the plain one errs."""
    matrix = DOORS.transition_matrix()
    kernel, weights = pairs = geometric_pairs(matrix, 0.9, stationary(matrix))
    laplacian = np.eye(DOORS.states) - 0.5 * (kernel + kernel.T * weights / weights[:, None])
    right = eigenpairs(pairs)
    np.testing.assert_allclose(laplacian @ right.vectors, right.vectors * right.values, atol=1e-10)
    _, wrong = np.linalg.eigh(laplacian)
    wrong = wrong / np.sqrt((wrong**2 * weights[:, None]).sum(0))
    assert np.abs((right.vectors * weights[:, None] * wrong).sum(0))[1:11].min() < 0.99


@pytest.mark.parametrize("length", [1, 50])
def test_truncated_eigenvalues_are_those_of_the_pairs(length):
    steps = np.linalg.eigvalsh(WALK)[::-1]
    pairs = episode_pairs(WALK, ROOMS.starts, 0.9, length)
    expected = np.sort(truncated_eigenvalues(steps, 0.9, length))
    np.testing.assert_allclose(eigenpairs(pairs).values, expected, atol=1e-12)


def test_truncated_eigenvalues_of_the_symmetric_rooms_as_published():
    rows = ["X" * 13, *["X.....X.....X"] * 2, "X...........X", *["X.....X.....X"] * 2]
    world = make_grid("\n".join([*rows, "XXX.XXXXX.XXX", *rows[:0:-1], rows[0]]))
    steps = np.linalg.eigvalsh(world.transition_matrix())[::-1]
    assert world.states == 104
    eigenvalues = truncated_eigenvalues(steps, 0.9, 50)[1:5]
    np.testing.assert_allclose(eigenvalues, [0.0439, 0.0439, 0.0882, 0.416], atol=6e-4)
    true = 0.9 * kernel_eigenvalues(steps, 0.9)[1:5]  # the paper's: of the SR
    np.testing.assert_allclose(true, [0.0540, 0.0540, 0.1068, 0.450], atol=6e-4)


def test_long_episodes_come_to_the_endless_kernel():
    steps = np.linspace(-1, 1, 9)
    eigenvalues = truncated_eigenvalues(steps, 0.9, 20_000)
    np.testing.assert_allclose(eigenvalues, kernel_eigenvalues(steps, 0.9), atol=1e-3)


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.9])
def test_eigenvalues_convert_both_ways(gamma):
    steps = np.linalg.eigvalsh(WALK)[::-1]
    values = eigenpairs(geometric_pairs(WALK, gamma)).values
    np.testing.assert_allclose(np.sort(kernel_eigenvalues(steps, gamma)), values, atol=1e-12)
    np.testing.assert_allclose(step_eigenvalues(values, gamma), steps, atol=1e-10)


def test_equal_eigenvalues_share_a_space():
    world = make_grid("GridRoom-1")
    pairs = eigenpairs(geometric_pairs(world.transition_matrix(), 0.9))
    assert pairs.spaces[:8].tolist() == [0, 1, 1, 2, 3, 3, 4, 4]
    assert len(pairs.first(5).values) == 6
    assert len(pairs.first(6).values) == 6
    with pytest.raises(EnvError, match="1 to 225 exist; received 226"):
        pairs.first(226)


@pytest.mark.parametrize("world", [ROOMS, DOORS], ids=["rooms", "doors"])
def test_hitting_times_solve_their_equation(world):
    matrix = world.transition_matrix()
    times = hitting_times(matrix)
    onward = 1 + matrix @ times
    np.fill_diagonal(onward, 0)
    np.testing.assert_allclose(times, onward, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(stationary(matrix) @ matrix, stationary(matrix), atol=1e-14)


def test_all_eigenpairs_give_the_exact_hitting_times_and_few_come_near():
    pairs = eigenpairs(geometric_pairs(WALK, 0.9))
    steps, exact = step_eigenvalues(pairs.values, 0.9), hitting_times(WALK)
    np.testing.assert_allclose(
        hitting_times_of_eigenpairs(pairs.vectors, steps), exact, rtol=1e-9, atol=1e-7
    )
    few = hitting_times_of_eigenpairs(pairs.vectors[:, :11], steps[:11])
    assert np.corrcoef(few.ravel(), exact.ravel())[0, 1] > 0.85


@pytest.mark.parametrize("gamma", [-0.1, 1.0, float("nan")])
def test_discounts_are_below_one(gamma):
    with pytest.raises(EnvError, match=r"gamma must be in \[0, 1\); received"):
        geometric_pairs(WALK, gamma)


def test_states_that_are_never_a_start_are_named():
    starts = np.zeros(ROOMS.states)
    starts[0] = 1
    with pytest.raises(EnvError, match="states are never a start, the first is state 2"):
        eigenpairs(episode_pairs(WALK, starts, 0.9, 2))
