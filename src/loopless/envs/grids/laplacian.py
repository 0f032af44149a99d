"""Ground truth for Laplacian representations: exact kernels, eigenpairs, hitting times.

    K        = (1−γ) P (I−γP)⁻¹                    where a walk of geometric length ≥ 1 leads
    L        = ½ (I + D⁻¹D') − ½ (K + D⁻¹KᵀD)
    <v, L v> = ½ E (v(s) − v(s'))²
    L v      = λ v,   Σ_s ρ(s) v_i(s) v_j(s) = δ_ij

D = diag(ρ) says how often each state is a start, and D' = diag(ρK) how often it is a successor. A
graph-drawing loss minimizes <v, L v> on the pairs that it gets, with the constant vector first. If
ρ is stationary, D' = D and L = I − ½ (K + D⁻¹KᵀD). Otherwise (with one-way doors and episodes that
start anywhere) I − ½ (K + D⁻¹KᵀD) is another matrix: it has a negative eigenvalue, and its
eigenvectors are not the ones that a perfect learner finds. `operator="kernel"` chooses it.

L is self-adjoint in ρ's inner product but not symmetric: its eigenvectors are D^−½ times those of
the symmetric D^½ L D^−½. The successor representation has the same eigenvectors and other
eigenvalues, λ_SR = γ λ; pairs from a buffer only know K.
"""

from typing import Literal, NamedTuple

import numpy as np

from loopless.envs import refuse
from loopless.refusals import check_choice, check_count

_NEGLIGIBLE = 1e-18  # a tail of the geometric law with less mass than this changes no float64


class Pairs(NamedTuple):
    """How pairs (s, s') are distributed: K [states, states], and ρ [states] of the first."""

    kernel: np.ndarray
    weights: np.ndarray


class Eigenpairs(NamedTuple):
    """All eigenpairs of a Laplacian, smallest eigenvalue first.

    values [states]; vectors [states, states], one a column, orthonormal in `weights` and positive
    where they are largest; spaces [states]: equal numbers for equal eigenvalues, whose vectors are
    one choice of many; weights [states]: ρ.
    """

    values: np.ndarray
    vectors: np.ndarray
    spaces: np.ndarray
    weights: np.ndarray

    def first(self, count: int) -> "Eigenpairs":
        """Return the first `count` eigenpairs, and the rest of the eigenspace of the last one."""
        states = len(self.values)
        problems = [] if 1 <= count <= states else [f"1 to {states} exist; received {count}"]
        refuse("grid: eigenvectors", problems)
        first = self.spaces <= self.spaces[count - 1]
        values, vectors, spaces = self.values[first], self.vectors[:, first], self.spaces[first]
        return Eigenpairs(values, vectors, spaces, self.weights)


def geometric_pairs(transitions: np.ndarray, gamma: float, weights=None) -> Pairs:
    """Return the law of pairs a geometric time apart in an endless walk.

    ρ is `weights` over their sum, by default uniform.
    """
    _check_gamma(gamma)
    states = len(transitions)
    resolvent = np.linalg.solve((np.eye(states) - gamma * transitions).T, transitions.T).T
    weights = np.full(states, 1 / states) if weights is None else np.asarray(weights) * 1.0
    return Pairs((1 - gamma) * resolvent, weights / weights.sum())


def episode_pairs(transitions: np.ndarray, starts, gamma: float, length: int) -> Pairs:
    """Return the exact law of pairs from a buffer of episodes of `length` transitions.

    The start t is uniform on 0 … length−1 of an episode that began in `starts` [states], and the
    gap is geometric, renormalized to end within the episode:

        ρ(s) K(s, s') = (1/T) Σ_t μ_t(s) Σ_{k=1}^{T−t} (1−γ)γ^(k−1) / (1−γ^(T−t)) P^k(s, s')
    """
    _check_gamma(gamma)
    refuse("grid: pairs", check_count("length", length))
    states = len(transitions)
    visits = [np.asarray(starts, np.float64)]
    for _ in range(length - 1):
        visits.append(visits[-1] @ transitions)
    joint, sums, power = np.zeros((states, states)), np.zeros((states, states)), np.eye(states)
    for ahead in range(1, length + 1):  # starts with so many transitions after them
        tail = gamma ** (ahead - 1)
        if tail < _NEGLIGIBLE:  # longer horizons all have this kernel
            joint += np.sum(visits[: length - ahead + 1], 0)[:, None] * sums
            break
        power = power @ transitions
        sums += (1 - gamma) * tail * power
        joint += visits[length - ahead][:, None] * (sums / (1 - gamma**ahead))
    joint /= length
    weights = joint.sum(1)
    return Pairs(joint / np.where(weights > 0, weights, 1)[:, None], weights)


def eigenpairs(
    pairs: Pairs, *, operator: Literal["loss", "kernel"] = "loss", tolerance: float = 1e-9
) -> Eigenpairs:
    """Return the eigenpairs of a Laplacian; eigenvalues within `tolerance` share a space.

    "loss" is the Laplacian of the loss, "kernel" the symmetric part of I − K; see the top of this
    file.
    """
    refuse("grid: eigenvectors", check_choice("operator", operator, ("loss", "kernel")))
    kernel, weights = pairs
    never = np.flatnonzero(~(weights > 0))
    if never.size:
        problem = f"{never.size} states are never a start, the first is state {never[0]}"
        refuse("grid: eigenvectors need every state as a start", [problem])
    root = np.sqrt(weights)
    flow = root[:, None] * kernel / root  # D^½ K D^−½
    ends = weights @ kernel / weights if operator == "loss" else np.ones(len(weights))
    values, vectors = np.linalg.eigh(np.diag(0.5 * (1 + ends)) - 0.5 * (flow + flow.T))
    vectors = vectors / root[:, None]
    largest = np.abs(vectors).argmax(0)
    vectors = vectors * np.sign(vectors[largest, np.arange(len(values))])
    spaces = np.concatenate([[0], np.cumsum(np.diff(values) > tolerance)])
    return Eigenpairs(values, vectors, spaces, weights)


def truncated_eigenvalues(steps, gamma: float, length: int) -> np.ndarray:
    """Return λ̄(p): what eigenvalue p of a step becomes if pairs come from episodes of `length`.

        λ̄(p) = 1 − (1/T) Σ_t Σ_{k=1}^{T−t} (1−γ)γ^(k−1) / (1−γ^(T−t)) p^k

    Gaps cannot pass the end of an episode, so λ̄ is smaller than the λ of an endless walk.
    """
    _check_gamma(gamma)
    refuse("grid: eigenvalues", check_count("length", length))
    steps = np.asarray(steps, np.float64)
    sums, total, power = np.zeros(steps.shape), np.zeros(steps.shape), np.ones(steps.shape)
    for ahead in range(1, length + 1):
        power = power * steps
        sums = sums + (1 - gamma) * gamma ** (ahead - 1) * power
        total = total + sums / (1 - gamma**ahead)
    return 1 - total / length


def step_eigenvalues(values, gamma: float) -> np.ndarray:
    """Return p of a step, from λ of the endless kernel K: p = (1−λ) / (1−γλ)."""
    values = np.asarray(values, np.float64)
    return (1 - values) / (1 - gamma * values)


def kernel_eigenvalues(steps, gamma: float) -> np.ndarray:
    """Return λ of the endless kernel K, from p of a step: λ = (1−p) / (1−γp)."""
    steps = np.asarray(steps, np.float64)
    return (1 - steps) / (1 - gamma * steps)


def stationary(transitions: np.ndarray) -> np.ndarray:
    """Return π [states] with πP = π, of a walk that reaches every state from every other."""
    states = len(transitions)
    system = np.vstack([transitions.T - np.eye(states), np.ones(states)])
    solution = np.linalg.lstsq(system, np.r_[np.zeros(states), 1.0], rcond=None)[0]
    positive = np.maximum(solution, 0)
    return positive / positive.sum()


def hitting_times(transitions: np.ndarray) -> np.ndarray:
    """Return H [states, states]: the expected steps from s until s' is first visited, exactly.

    H(s, s') = (Z(s', s') − Z(s, s')) / π(s'),  Z = (I − P + 1πᵀ)⁻¹    (Kemeny & Snell 1960)
    """
    weights = stationary(transitions)
    fundamental = np.linalg.inv(np.eye(len(transitions)) - transitions + weights)
    return (np.diag(fundamental) - fundamental) / weights


def hitting_times_of_eigenpairs(vectors, steps) -> np.ndarray:
    """Return H [states, states] from eigenpairs of a reversible walk; more pairs are more exact.

        H(s, s') = Σ_{k≥2} (v_k(s')² − v_k(s) v_k(s')) / (1 − p_k)

    `vectors` [states, d] are orthonormal in π, the first one constant, and `steps` [d] are p_k
    (`step_eigenvalues`). All d = states of them give the exact times; learned ones give estimates.
    """
    vectors, steps = np.asarray(vectors, np.float64)[:, 1:], np.asarray(steps, np.float64)[1:]
    scaled = vectors / np.sqrt(1 - steps)
    return (scaled**2).sum(1) - scaled @ scaled.T


def _check_gamma(gamma: float) -> None:
    problems = [] if 0 <= gamma < 1 else [f"gamma must be in [0, 1); received {gamma!r}"]
    refuse("grid", problems)
