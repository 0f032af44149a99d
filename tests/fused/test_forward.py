"""`forward`: the module's own outputs, from the weights of the moment, or a refusal by name."""

import copy
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from loopless.compiled import program
from loopless.fused import forward as home
from loopless.fused.forward import forward
from loopless.fused.network import Network


def mlp(*sizes: int, activation=nn.Tanh) -> nn.Sequential:
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1])


class Dueling(nn.Module):
    """Nested, normalized, with two heads that are put together."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(mlp(4, 9), nn.LayerNorm(9), nn.Sequential(nn.ELU()))
        self.advantage, self.value = nn.Linear(9, 3), nn.Linear(9, 1)

    def forward(self, x):
        h = self.body(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(dim=1, keepdim=True)


class Trunk(nn.Module):
    """A shared trunk with two heads, in functional form, on pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x, unused=None):
        if unused is not None:
            raise AssertionError("an optional argument keeps its default")
        h = F.relu(self.first(torch.flatten(x.float() / 255.0, 1)))
        return self.policy(h), self.value(h).squeeze(-1)


class Gaussian(nn.Module):
    """SAC's actor: mean and a bounded log_std; and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(4, 7, 6, activation=nn.ReLU)
        self.own = nn.Parameter(torch.linspace(-1, 1, 3)[None])
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        mean, log_std = self.body(x).chunk(2, dim=-1)
        log_std = -5 + 0.5 * (2 - -5) * (torch.tanh(log_std) + 1)
        own = self.own.expand_as(mean).exp()
        return {
            "mean": mean * self.scale,
            "std": log_std.clamp(-20, 2).exp(),
            "own": own,
            "as_is": self.own,
        }


class Residual(nn.Module):
    """In-place operations change what they read, also for those who read it later."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.relu = (
            nn.Linear(4, 5),
            nn.Linear(5, 5, bias=False),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        h = self.a(x)
        y = self.relu(h)
        h = h + self.b(y)
        h += 1
        return torch.cat(
            [h[:, 1:3], h[..., 4:], -h.abs().sqrt(), h**2, torch.ones_like(y) * 2], dim=-1
        )


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = F.dropout(self.drop(self.norm(x.view(x.size(0), -1))), 0.1, self.training)
        return F.log_softmax(self.out(x), dim=-1), F.layer_norm(x, (4,)), self.out(x).softmax(-1)


MODULES = {
    "linear": lambda: nn.Linear(4, 3),
    "mlp": lambda: mlp(4, 64, 64, 2),
    "odd": lambda: mlp(4, 3, 17, 5, 1, activation=nn.ReLU),
    "dueling": Dueling,
    "trunk": Trunk,
    "gaussian": Gaussian,
    "residual": Residual,
    "statistics": Statistics,
    "flatten": lambda: nn.Sequential(nn.Flatten(), mlp(4, 8, 2)),
}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name]().eval()


def observations(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)


def expect(module: nn.Module, x: np.ndarray):
    """Return what PyTorch gives in float64, as a list of arrays."""
    with torch.no_grad():
        outputs = copy.deepcopy(module).double()(torch.from_numpy(x).double())
    return [part.detach().numpy() for part in listed(outputs)]


def listed(outputs) -> list:
    if isinstance(outputs, dict):
        return list(outputs.values())
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def assert_equal(received, expected):
    """Compare at float32's accuracy for numbers around 1."""
    for mine, theirs in zip(listed(received), expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


# --- the same outputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7, 200], ids=["one row", "rows", "in PyTorch"])
@pytest.mark.parametrize("name", MODULES)
def test_a_batch_has_the_outputs_of_the_module(name, rows, monkeypatch):
    module, x = make(name), observations(rows)
    if name == "trunk":
        monkeypatch.setattr(torch.Tensor, "float", lambda self: self)  # float64 stays, to compare
    assert_equal(forward(module)(x), expect(module, x))


@pytest.mark.parametrize("name", MODULES)
def test_one_observation_has_the_outputs_of_the_module_without_the_row(name):
    module, x = make(name), observations(1)
    with torch.no_grad():
        outputs = listed(module(torch.from_numpy(x)))
    fixed = [name == "gaussian" and i == 3 for i in range(len(outputs))]  # a parameter as it is
    expected = [
        p.detach().numpy() if f else p.numpy()[0] for p, f in zip(outputs, fixed, strict=True)
    ]
    assert_equal(forward(module)(x[0]), expected)


ACTIVATIONS = [
    *(nn.ReLU(), nn.Tanh(), nn.ELU(0.7), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.LeakyReLU(0.2)),
    *(nn.Sigmoid(), nn.Softplus(), nn.Softplus(2.0, 5.0), nn.Identity(), nn.SELU(), nn.Mish()),
    *(nn.Hardtanh(-0.5, 2), nn.ReLU6()),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_an_activation_is_exact_over_the_whole_range(activation):
    """Each is a few float32 operations and a tanh or exp within 3e-7 of itself: 2e-6 in all."""
    x = np.concatenate([np.linspace(-30, 30, 601), np.geomspace(1e-30, 1e4, 99), [0]])
    x = np.concatenate([x, -x]).astype(np.float32)
    linear = nn.Linear(1, 1)
    with torch.no_grad():
        linear.weight.fill_(1), linear.bias.zero_()
    module = nn.Sequential(linear, activation)
    y = np.concatenate([forward(module)(part) for part in np.array_split(x[:, None], 14)])
    lost = 1e-15 if isinstance(activation, nn.GELU) else 1e-30  # by PyTorch's own 1 + erf
    np.testing.assert_allclose(y, expect(module, x[:, None])[0], rtol=2e-6, atol=lost)
    assert np.isnan(forward(module)(np.float32([np.nan]))).all()


@pytest.mark.parametrize("rows", [5, 200], ids=["rows", "in PyTorch"])
@pytest.mark.parametrize("form", ["float64", "uint8", "list", "reversed", "read-only", "columns"])
def test_any_array_of_numbers_is_read(form, rows):
    module = make("mlp")
    x = observations(rows)
    x = {
        "float64": x.astype(np.float64),
        "uint8": np.abs(100 * x).astype(np.uint8),
        "list": x.tolist(),
        "reversed": x[::-1],
        "read-only": np.broadcast_to(x[0], (rows, 4)),
        "columns": np.asfortranarray(x),
    }[form]
    whole = np.ascontiguousarray(x, np.float32)
    act = forward(module)
    assert_equal(act(x), expect(module, whole))
    assert_equal(act(x[2]), [expect(module, whole)[0][2]])
    # one for an observation, one for many; another would be compiled for seconds
    assert len(program.forward.signatures) <= 2


def test_pixels_are_flattened_as_the_module_flattens_them():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    x = np.random.default_rng(0).normal(size=(5, 3, 2, 2)).astype(np.float32)
    assert_equal(forward(module)(x), expect(module, x))
    assert_equal(forward(module)(x[1]), [expect(module, x)[0][1]])


def test_results_are_fresh():
    act, x = forward(make("mlp")), observations(1)[0]
    first = act(x)
    kept = first.copy()
    act(x + 1)
    np.testing.assert_array_equal(first, kept)
    assert first.flags.writeable
    assert first.flags.owndata


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_has_its_own_module(copied):
    act, x = forward(make("mlp")), observations(1)[0]
    other, before = copied(act), act(x)
    with torch.no_grad():
        other.module[0].weight.zero_()
    np.testing.assert_array_equal(act(x), before)
    assert not np.allclose(other(x), before)


def test_threads_do_not_disturb_each_other():
    module, x = make("mlp"), observations(64)
    act, expected, wrong = forward(module), expect(module, x)[0], []

    def work():
        for i in range(2000):
            if not np.allclose(act(x[i % 64]), expected[i % 64], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert wrong == []


@pytest.mark.parametrize("rows", [150, 151])
def test_large_batches_run_in_pytorch(rows, monkeypatch):
    calls = []
    monkeypatch.setattr(home, "call_module", lambda module, x: calls.append(len(x)))
    forward(make("mlp"))(observations(rows))
    assert calls == ([rows] if rows > 150 else [])


# --- the weights of the moment -------------------------------------------------------------------


def train(module):
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    module(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def load(module):
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()})


def assign(module):
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()}, assign=True)


def round_trip(module):
    with torch.no_grad():
        module.bfloat16()[0].weight.add_(1)
    module.float()


def set_data(module):
    module[2].weight.data = module[2].weight.data + 1


def set_parameter(module):
    module[4].bias = nn.Parameter(module[4].bias.detach() + 1)


def from_vector(module):
    vector = nn.utils.parameters_to_vector(module.parameters())
    nn.utils.vector_to_parameters(vector + 1, module.parameters())


def replace_layer(module):
    module[2] = nn.Linear(64, 64)


def replace_activation(module):
    module[1] = nn.ReLU()


def widen(module):
    module[2], module[4] = nn.Linear(64, 100), nn.Linear(100, 2)


def cut(module):
    """Take views of the same memory, but for the last."""
    for name in ("weight", "bias"):
        getattr(module[2], name).data = getattr(module[2], name).data[:32]
    module[4].weight.data = module[4].weight.data[:, :32].contiguous()


def cut_only(module):
    """Take views of the same memory, and nothing else."""
    module[4].weight.data = module[4].weight.data[:1]
    module[4].bias.data = module[4].bias.data[:1]


def append(module):
    module.append(nn.Linear(2, 5))


def drop_bias(module):
    module[0].bias = None


IN_PLACE = [train, load]
CHANGES = [assign, round_trip, set_data, set_parameter, from_vector, replace_layer]
CHANGES += [replace_activation, widen, cut, cut_only, append, drop_bias]


@pytest.mark.parametrize("change", IN_PLACE + CHANGES)
def test_a_change_counts_at_once(change):
    module, x = make("mlp"), observations(3)
    act = forward(module)
    before = act(x)
    change(module)
    assert_equal(act(x), expect(module, x))
    assert_equal(act(x[0]), [expect(module, x)[0][0]])
    assert before.shape != act(x).shape or not np.allclose(before, act(x), atol=1e-3)


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_never_compared_is_noticed(change, monkeypatch):
    module, x = make("mlp"), observations(3)
    act = forward(module)
    before = act(x)
    monkeypatch.setattr(act._network, "is_current", lambda: True)
    change(module)
    np.testing.assert_array_equal(act(x), before)


def test_a_bias_that_is_added_counts_at_once():
    module, x = nn.Sequential(nn.Linear(4, 3, bias=False)), observations(3)
    act = forward(module)
    act(x)
    module[0].bias = nn.Parameter(torch.ones(3))
    assert_equal(act(x), expect(module, x))


def test_memory_that_was_given_back_is_not_mistaken_for_the_old():
    """A freed address may be given to a tensor of another type: what was read is held."""
    module, x = make("mlp"), observations(3)
    act = forward(module)
    act(x)
    address = module[2].weight.data_ptr()
    for _ in range(50):
        module[2].weight.data = torch.zeros(64, 64)
        assert module[2].weight.data_ptr() != address


def test_only_addresses_are_read_anew_if_only_they_changed(monkeypatch):
    module = make("mlp")
    act = forward(module)
    monkeypatch.setattr(Network, "_build", None)
    from_vector(module)
    assert_equal(act(observations(3)), expect(module, observations(3)))


# --- refusals ------------------------------------------------------------------------------------


class Forwarding(nn.Module):
    """A module whose forward is the given function of itself and x."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function, self.linear, self.matrix = (
            function,
            nn.Linear(4, 4),
            nn.Parameter(torch.eye(4)),
        )

    def forward(self, x):
        return self.function(self, self.linear(x))


def frozen(function):
    return lambda: Forwarding(function)


def hooked():
    module = make("mlp")
    module[2].register_forward_hook(lambda *_: None)
    return module


REFUSED = {
    "convolution": (lambda: nn.Sequential(mlp(4, 4), nn.Conv2d(1, 1, 1)), 'layer "1" is Conv2d'),
    "recurrent": (lambda: nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4)), 'layer "1" is GRU'),
    "unknown": (frozen(lambda self, x: torch.fft.fft(x)), '"fft_fft" in forward is not known'),
    "branch": (frozen(lambda self, x: x if x.sum() > 0 else -x), "cannot be followed"),
    "rows": (frozen(lambda self, x: x - x.mean(0)), '"mean" in forward runs over dim=0'),
    "computed": (frozen(lambda self, x: F.linear(x, self.matrix * 2)), "must have one row"),
    "double": (lambda: make("mlp").double(), '"weight" is torch.float64; call float()'),
    "half inside": (frozen(lambda self, x: x.to(torch.float16)), "makes it torch.float16"),
    "hook": (hooked, "forward hooks"),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout()), 'layer "1" is Dropout in tr'),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(4)), 'layer "0" is BatchNorm1d in train'),
    "no size": (lambda: nn.Sequential(nn.ReLU()), "the observation is read by no layer"),
    "widths": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), 'layer "1" takes 4'),
    "gpu": (lambda: make("mlp").to("meta"), '"weight" is on meta'),
    "parametrized": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
        'layer "0" is ParametrizedLinear',
    ),
    "no module": (lambda: lambda x: x, "received function, which is no torch.nn.Module"),
    "power": (frozen(lambda self, x: x**3), '"pow" in forward raises to the power 3'),
    "broadcast": (frozen(lambda self, x: x + x.mean(-1)), "combines 4 entries with one number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name):
    build, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=r"^forward: ") as error:
        forward(build())
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["statistics", "drop"])
def test_training_mode_is_refused_at_the_call(name):
    module = make("statistics") if name == "statistics" else nn.Sequential(mlp(4, 4), nn.Dropout())
    act = forward(module.eval())
    act(observations(1))
    module.train()
    with pytest.raises(ValueError, match=r"training mode.*Call eval\(\)"):
        act(observations(1))
    module.eval()
    assert_equal(act(observations(3)), expect(module, observations(3)))


@pytest.mark.parametrize(
    "change", [nn.Module.double, nn.Module.half, lambda module: module.to("meta")]
)
def test_a_module_that_moved_is_refused_at_the_call(change):
    module = make("mlp")
    act = forward(module)
    act(observations(1))
    change(module)
    with pytest.raises(TypeError, match=r'"weight" is .*torch\.float|"weight" is on meta'):
        act(observations(1))


def test_a_square_weight_transposed_on_the_same_memory_is_noticed():
    module = make("mlp")
    act = forward(module)
    act(observations(1))
    address = module[2].weight.data_ptr()
    module[2].weight.data = module[2].weight.data.t()
    assert module[2].weight.data_ptr() == address
    with pytest.raises(TypeError, match='"weight" is not contiguous'):
        act(observations(1))
    module[2].weight.data = module[2].weight.data.contiguous()
    assert_equal(act(observations(3)), expect(module, observations(3)))


def test_a_global_hook_is_refused_at_the_call():
    act = forward(make("mlp"))
    hook = nn.modules.module.register_module_forward_pre_hook(lambda *_: None)
    with hook, pytest.raises(ValueError, match="global forward hooks"):
        act(observations(1))
    act(observations(1))


def test_a_hook_is_refused_at_the_call():
    module = make("mlp")
    act = forward(module)
    module[0].register_forward_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match="forward hooks"):
        act(observations(1))


@pytest.mark.parametrize("obs", [np.zeros(3), np.zeros((2, 5)), np.zeros((0, 4)), 1.0], ids=str)
def test_observations_of_another_size_are_refused(obs):
    with pytest.raises(ValueError, match=r"reads 4 numbers\. Pass one observation \(4,\)"):
        forward(make("mlp"))(obs)


@pytest.mark.parametrize("obs", [{"a": 1}, ["a", "b", "c", "d"], None], ids=str)
def test_what_is_no_array_is_refused(obs):
    with pytest.raises((TypeError, ValueError), match=r"^forward: "):
        forward(make("mlp"))(obs)
