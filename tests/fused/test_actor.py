"""`actor`: draws by the law of PyTorch's distribution, and its log-probability of each draw."""

import copy
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Categorical, Independent, Normal, TanhTransform
from torch.distributions import TransformedDistribution as Transformed

from loopless.compiled import draws
from loopless.fused import forward as home
from loopless.fused.actor import actor

INSIDE = pytest.mark.parametrize("rows", [100, 400], ids=["compiled", "in PyTorch"])


def mlp(*sizes: int, end: tuple = ()) -> nn.Sequential:
    torch.manual_seed(sizes[-1])
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1], *end)


class Two(nn.Module):
    """A shared trunk with several heads."""

    def __init__(self, *heads: nn.Module) -> None:
        super().__init__()
        self.trunk, self.heads = mlp(3, 8), nn.ModuleList(heads)

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return tuple(head(h) for head in self.heads)


def head(width: int, *end: nn.Module) -> nn.Module:
    return mlp(8, width, end=end)


def observations(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)


def outputs(module: nn.Module, x: np.ndarray):
    with torch.no_grad():
        return copy.deepcopy(module).double()(torch.from_numpy(x).double())


LOG_STD = torch.tensor([[-0.7, 0.3]])
SCALE = nn.Parameter(torch.tensor([-0.5, 0.2]))


def categorical(policy, x):
    return Categorical(logits=outputs(policy, x))


def shared(policy, x):
    return Categorical(logits=outputs(policy, x)[0])


def probabilities(policy, x):
    return Categorical(probs=outputs(policy, x))


def normal(policy, x):
    return Independent(Normal(outputs(policy, x), SCALE.detach().double().exp()), 1)


def network_scale(policy, x):
    mean, log_std = outputs(policy, x)[:2]
    return Independent(Normal(mean, log_std.exp()), 1)


def network_std(policy, x):
    return Independent(Normal(*outputs(policy, x)), 1)


def squashed(policy, x):
    mean, log_std = outputs(policy, x)
    inside = TanhTransform()
    scale = torch.distributions.AffineTransform(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0]))
    return Independent(Transformed(Normal(mean, log_std.exp()), [inside, scale]), 1)


CASES = {
    "categorical": (lambda: mlp(3, 16, 4), "categorical", {}, categorical),
    "shared trunk": (lambda: Two(head(4), head(1)), "categorical", {}, shared),
    "softmax": (lambda: mlp(3, 4, end=(nn.Softmax(-1),)), "categorical", {}, probabilities),
    "normal": (lambda: mlp(3, 16, 2), "normal", {"log_std": SCALE}, normal),
    "network scale": (lambda: Two(head(2), head(2)), "normal", {}, network_scale),
    "one scale and value": (lambda: Two(head(2), head(1), head(1)), "normal", {}, network_scale),
    "std": (lambda: Two(head(2), head(2, nn.Softplus())), "normal", {"std": True}, network_std),
    "squashed": (
        lambda: Two(head(2), head(2)),
        "squashed",
        {"bounds": (np.array([-2.0, -2.0]), np.array([2.0, 4.0]))},
        squashed,
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    build, kind, options, distribution = CASES[request.param]
    policy = build()
    return policy, actor(policy, kind, seed=3, **options), distribution


# --- log-probabilities and values ----------------------------------------------------------------


@INSIDE
def test_log_probabilities_are_those_of_pytorch_given_the_action(case, rows):
    """Parameters are float32 sums of some ten terms around 1: within 1e-5.

    A density near tanh's ends is steep in the action, which is rounded to float32: d log p / da is
    up to 2 / (1 − a²) there. Actions beyond 0.99 of the bound are left out.
    """
    policy, act, distribution = case
    x = observations(rows)
    actions, log_probs, _ = act(x)
    if distribution is squashed:
        inside = (np.abs((actions - [0, 1]) / [2, 3]) < 0.99).all(1)
        assert inside.mean() > 0.5
        x, actions, log_probs = x[inside], actions[inside], log_probs[inside]
    expected = distribution(policy, x).log_prob(torch.from_numpy(actions).double())
    tolerance = 2e-4 if distribution is squashed else 1e-5
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=tolerance)


def test_an_uncorrected_density_is_noticed():
    build, kind, options, _ = CASES["squashed"]
    policy = build()
    x = observations(50)
    actions, log_probs, _ = actor(policy, kind, **options)(x)
    u = np.arctanh(((actions - [0, 1]) / [2, 3]).clip(-0.999, 0.999))
    plain = network_scale(policy, x).log_prob(torch.from_numpy(u))
    assert np.abs(plain.numpy() - log_probs).max() > 1


@INSIDE
@pytest.mark.parametrize("width", [1, None])
def test_values_are_those_of_the_critic(width, rows):
    policy, x = mlp(3, 4), observations(rows)
    critic = mlp(3, 8, 1, end=() if width else (nn.Flatten(),))
    act = actor(policy, "categorical", value=critic)
    expected = outputs(critic, x)[:, 0]
    np.testing.assert_allclose(act(x)[2], expected, atol=1e-5)
    action, log_prob, value = act(x[0])
    assert [type(part) for part in (action, log_prob, value)] == [int, float, float]
    assert value == pytest.approx(float(expected[0]), abs=1e-5)


def test_the_value_may_come_from_the_shared_trunk():
    policy, x = Two(head(4), head(1)), observations(5)
    np.testing.assert_allclose(
        actor(policy, "categorical")(x)[2], outputs(policy, x)[1][:, 0], atol=1e-5
    )
    assert actor(mlp(3, 4), "categorical")(x)[2] is None


# --- laws ----------------------------------------------------------------------------------------


def draw_many(act, x: np.ndarray, draws: int, rows: int, **options):
    """Return many actions for one observation."""
    batch = np.broadcast_to(x, (rows, x.size))
    masks = {k: np.broadcast_to(v, (rows, v.size)) for k, v in options.items()}
    return np.concatenate([act(batch, **masks)[0] for _ in range(draws // rows)])


@INSIDE
@pytest.mark.parametrize("mask", [None, [1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], ids=str)
def test_choices_have_the_frequencies_of_the_policy(mask, rows):
    policy, x = mlp(3, 16, 4), observations(1)
    act = actor(policy, "categorical", seed=5)
    options = {} if mask is None else {"mask": np.array(mask, bool)}
    actions = draw_many(act, x[0], 40_000, rows, **options)
    p = np.exp(outputs(policy, x)[0].numpy()) * (mask if mask and any(mask) else 1)
    counts, expected = np.bincount(actions, minlength=4), 40_000 * p / p.sum()
    assert (counts[expected == 0] == 0).all()
    legal = expected > 0
    if legal.sum() > 1:
        assert stats.chisquare(counts[legal], expected[legal]).pvalue > 1e-4


def test_choices_of_a_multi_discrete_action_are_independent():
    policy, x = mlp(3, 16, 5), observations(1)
    act = actor(policy, "categorical", sizes=(3, 2), seed=1)
    actions, log_probs, _ = act(observations(7))
    logits = outputs(policy, observations(7))
    parts = [Categorical(logits=logits[:, :3]), Categorical(logits=logits[:, 3:])]
    expected = sum(part.log_prob(torch.from_numpy(actions[:, i])) for i, part in enumerate(parts))
    np.testing.assert_allclose(log_probs, expected, atol=1e-5)
    assert act(observations(1)[0])[0].shape == (2,)
    many = draw_many(act, x[0], 40_000, 100)
    logits = outputs(policy, x)[0]
    p = np.outer(torch.softmax(logits[:3], 0), torch.softmax(logits[3:], 0)).ravel()
    counts = np.bincount(many[:, 0] * 2 + many[:, 1], minlength=6)
    assert stats.chisquare(counts, 40_000 * p / p.sum()).pvalue > 1e-4


@INSIDE
@pytest.mark.parametrize("kind", ["normal", "squashed"])
def test_numbers_are_normal_and_independent(kind, rows):
    policy, x = Two(head(3), head(3)), observations(1)
    actions = draw_many(actor(policy, kind, seed=2), x[0], 20_000, rows)
    mean, log_std = (part[0].numpy() for part in outputs(policy, x))
    u = (
        np.arctanh(actions.astype(float).clip(-1 + 1e-7, 1 - 1e-7))
        if kind == "squashed"
        else actions
    )
    z = (u - mean) / np.exp(log_std)
    for i in range(3):
        assert stats.kstest(z[:, i], "norm").pvalue > 1e-4
        assert stats.kstest(np.diff(z[:, i]) / 2**0.5, "norm").pvalue > 1e-4  # rows independent
    correlations = np.corrcoef(z.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(20_000)


def test_another_law_is_noticed():
    """The chi-square above rejects a policy whose logits are off by a tenth."""
    policy, x = mlp(3, 16, 4), observations(1)
    actions = draw_many(actor(policy, "categorical", seed=5), x[0], 40_000, 100)
    p = np.exp(outputs(policy, x)[0].numpy() + np.array([0.1, 0, 0, 0]))
    assert stats.chisquare(np.bincount(actions, minlength=4), 40_000 * p / p.sum()).pvalue < 1e-4


# --- the generator -------------------------------------------------------------------------------


def test_a_batch_draws_what_single_calls_would(case):
    _, act, _ = case
    x, state = observations(9), act.state()
    batch = act(x)
    act.restore(state)
    singles = [act(row) for row in x]
    for together, alone in zip(batch[:2], list(zip(*singles, strict=True))[:2], strict=True):
        np.testing.assert_allclose(together, np.array(alone), rtol=1e-6, atol=1e-6)


def test_pytorch_and_the_kernel_draw_the_same(case, monkeypatch):
    _, act, _ = case
    x, state = observations(60), act.state()
    compiled = act(x)
    act.restore(state)
    monkeypatch.setattr(home, "MOST_ROWS", 10)
    for mine, theirs in zip(compiled, act(x), strict=True):
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_state_can_be_saved(case):
    _, act, _ = case
    x = observations(20)
    act(x)
    state = act.state()
    first, second = act(x), act(x)
    assert not np.array_equal(first[0], second[0])
    act.restore(state)
    np.testing.assert_array_equal(act(x)[0], first[0])


def test_seeds_draw_their_own_streams():
    policy, x = mlp(3, 16, 4), observations(100)
    draws = [actor(policy, "categorical", seed=seed)(x)[0].tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_greedy_draws_nothing(case):
    policy, act, distribution = case
    x, state = observations(20), act.state()
    actions, log_probs, _ = act(x, greedy=True)
    np.testing.assert_array_equal(act.state()["random"], state["random"])
    expected = distribution(policy, x)
    if isinstance(expected, Categorical):
        np.testing.assert_array_equal(actions, expected.probs.argmax(-1))
    elif distribution is not squashed:
        np.testing.assert_allclose(actions, expected.mean, atol=1e-5)
        np.testing.assert_allclose(log_probs, expected.log_prob(expected.mean), atol=1e-5)


def test_a_copy_goes_on_from_the_same_state(case):
    _, act, _ = case
    x = observations(20)
    act(x)
    np.testing.assert_array_equal(copy.deepcopy(act)(x)[0], act(x)[0])


def test_threads_never_share_a_draw():
    act, x, seen = actor(mlp(3, 16, 2), "normal", log_std=LOG_STD), observations(1)[0], []

    def work():
        seen.extend(tuple(act(x)[0]) for _ in range(2000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen) == 8000


FORK = """
import os, numpy as np, torch
from loopless.fused.actor import actor
torch.manual_seed(0)
act, x = actor(torch.nn.Linear(3, 50), "categorical"), np.zeros((20, 3))
act(x)
def child(depth):
    if not (pid := os.fork()):
        print(act(x)[0].tolist(), flush=True)
        if depth:
            child(depth - 1)
        os._exit(0)
    os.waitpid(pid, 0)
child(1), child(0)
print(act(x)[0].tolist(), flush=True)
"""


@pytest.mark.slow
def test_every_process_draws_its_own_stream_after_a_fork():
    """Two children, a grandchild and the parent; the streams are the same in every run."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", FORK], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    lines = runs[0].splitlines()
    assert len(set(lines)) == len(lines) == 4
    assert runs[0] == runs[1]


# --- the weights of the moment, refusals ---------------------------------------------------------


def test_weights_of_the_moment_count_for_all_modules():
    policy, critic, log_std = mlp(3, 2), mlp(3, 1), nn.Parameter(torch.zeros(2))
    act, x = actor(policy, "normal", value=critic, log_std=log_std), observations(1)[0]
    act(x)
    with torch.no_grad():
        policy[0].weight.zero_(), policy[0].bias.fill_(5)
        critic[0].weight.zero_()
        log_std.fill_(-100)
    critic[0].bias = nn.Parameter(torch.tensor([7.0]))
    action, _, value = act(x)
    np.testing.assert_array_equal(action, [5, 5])
    assert value == 7


def test_a_table_that_is_never_compared_is_noticed(monkeypatch):
    critic = mlp(3, 1)
    act, x = actor(mlp(3, 2), "categorical", value=critic), observations(1)[0]
    before = act(x)[2]
    monkeypatch.setattr(act._network, "is_current", lambda: True)
    critic[0].bias = nn.Parameter(torch.tensor([7.0]))
    assert act(x)[2] == before


def test_one_kernel_is_compiled_for_all(case):
    _, act, _ = case
    act(observations(3)[::-1])
    act(observations(3)[1].astype(float))
    assert len(draws.act.signatures) == 1


@pytest.mark.parametrize("kind", ["categorical", "normal"])
def test_nan_is_refused_and_nothing_is_drawn(kind):
    policy = mlp(3, 2)
    act = actor(policy, kind, **({"log_std": SCALE} if kind == "normal" else {}))
    state = act.state()
    x = observations(5)
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"actor: .* for observation 3 give no distribution"):
        act(x)
    with pytest.raises(ValueError, match="for observation 0 give no distribution"):
        act(x[3])
    np.testing.assert_array_equal(act.state()["random"], state["random"])


REFUSED = {
    "no scale beside a critic": (
        lambda: actor(mlp(3, 1), "normal", value=mlp(3, 1)),
        "mean and log_std (or pass log_std=)",
    ),
    "kind": (lambda: actor(mlp(3, 2), "gaussian"), "kind='gaussian' is unknown; choose categori"),
    "no scale": (lambda: actor(mlp(3, 2), "normal"), "must return mean and log_std (or pass log_"),
    "too many": (
        lambda: actor(Two(head(2), head(1)), "categorical", value=mlp(3, 1)),
        "return 3 outputs in all; they must return logits, and at most one value",
    ),
    "wide value": (
        lambda: actor(mlp(3, 2), "categorical", value=mlp(3, 5)),
        "the value must be one number; received 5",
    ),
    "sizes": (
        lambda: actor(mlp(3, 4), "categorical", sizes=(3, 2)),
        "sizes add up to 5, but there",
    ),
    "scales": (
        lambda: actor(mlp(3, 2), "normal", log_std=torch.zeros(3)),
        "there are 2 means, but 3 scales",
    ),
    "std": (
        lambda: actor(Two(head(2), head(2, nn.Softplus())), "normal"),
        "no log_std; pass std=True",
    ),
    "bounds": (
        lambda: actor(Two(head(2), head(2)), "squashed", bounds=(1.0, -1.0)),
        "bounds must be finite with low < high",
    ),
    "bounds of another size": (
        lambda: actor(Two(head(2), head(2)), "squashed", bounds=(np.zeros(3), np.ones(3))),
        "bounds must be finite with low < high, numbers or 2 each",
    ),
    "option": (
        lambda: actor(mlp(3, 2), "categorical", log_std=LOG_STD),
        "log_std does not go with 'categorical'",
    ),
    "observations": (
        lambda: actor(mlp(3, 2), "categorical", value=mlp(4, 1)),
        "the observation has 4 entries here and 3 in the first module",
    ),
    "layer": (
        lambda: actor(nn.Sequential(nn.Linear(3, 2), nn.LSTM(2, 2)), "categorical"),
        'layer "1" is LSTM, which actor does not know',
    ),
    "mask shape": (
        lambda: actor(mlp(3, 2), "categorical")(np.zeros(3), mask=[True]),
        "mask has shape (1,), but the logits have (2,)",
    ),
    "mask values": (
        lambda: actor(mlp(3, 2), "categorical")(np.zeros(3), mask=[0.5, 1]),
        "mask must be boolean, or 0 and 1",
    ),
    "mask of numbers": (
        lambda: actor(mlp(3, 2), "normal", log_std=LOG_STD)(np.zeros(3), mask=[True, True]),
        "only choices have a mask",
    ),
    "shape": (lambda: actor(mlp(3, 2), "categorical")(np.zeros(4)), "the module reads 3 numbers"),
    "obs": (lambda: actor(mlp(3, 2), "categorical")("a"), "must be an array of numbers"),
    "state": (
        lambda: actor(mlp(3, 2), "categorical").restore({"random": np.zeros(2)}),
        "random must be uint64 [2]; received float64 (2,)",
    ),
    "no state": (lambda: actor(mlp(3, 2), "categorical").restore({}), "random is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=r"^actor") as error:
        call()
    assert message in str(error.value)
