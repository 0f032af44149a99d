"""Recurrent nets, attention, embeddings and convolutions: fused updates end where eager ones do."""

import pytest
import torch
import torch.nn.functional as F
from support.fused import Pair, eager
from torch import nn

import loopless as ll
from loopless.fused import check


class Recurrent(nn.Module):
    """A memory over 8 steps, and a head on what it holds at each of them."""

    def __init__(self, kind):
        super().__init__()
        self.memory, self.head = kind(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.memory(x)[0])


class Cells(nn.Module):
    """Cells stepped by hand; the state begins anew where an episode does."""

    def __init__(self, kind):
        super().__init__()
        self.cell, self.head = kind(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden, outputs = x.new_zeros(len(x), 4), []
        for step in range(2):
            hidden = self.cell(x[:, step], hidden * (x[:, step, :1] < 1))
            outputs.append(self.head(hidden))
        return torch.stack(outputs, 1)


class Attention(nn.Module):
    """Causal attention with two heads over embedded tokens."""

    def __init__(self):
        super().__init__()
        self.tokens, self.mix = nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 12)

    def forward(self, tokens):
        x = self.tokens(tokens)
        q, k, v = (
            part.unflatten(-1, (2, 2)).transpose(1, 2) for part in self.mix(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + mixed.transpose(1, 2).flatten(2)


def encoder():
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


def pictures():
    """The Nature network's form: three convolutions with strides on stacked frames of bytes."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 4, 2), nn.ReLU(), nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 2, 1),
        nn.ReLU(), nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2),
    )  # fmt: skip


def loss(net, batch):
    x = batch["x"]
    scores = net(x.double() / 255 if x.dtype is torch.uint8 else x)
    return F.cross_entropy(scores.flatten(0, -2), batch["label"].flatten()), {"scores": scores}


def normal(*shape):
    return torch.randn(shape, generator=draws, dtype=torch.float64)


def whole(bound, *shape):
    return torch.randint(bound, shape, generator=draws)


draws = torch.Generator().manual_seed(0)
MODULES = {
    "lstm": (lambda: Recurrent(nn.LSTM), normal(2, 5, 8, 3), whole(2, 2, 5, 8)),
    "gru": (lambda: Recurrent(nn.GRU), normal(2, 5, 8, 3), whole(2, 2, 5, 8)),
    "gru cell": (lambda: Cells(nn.GRUCell), normal(2, 5, 2, 3), whole(2, 2, 5, 2)),
    "attention": (Attention, whole(7, 2, 5, 6), whole(4, 2, 5, 6)),
    "encoder": (encoder, normal(2, 5, 6, 4), whole(4, 2, 5, 6)),
    "pictures": (pictures, whole(256, 2, 5, 2, 12, 12).to(torch.uint8), whole(2, 2, 5)),
}


def marks(name):
    return pytest.mark.slow if name in {"lstm", "gru", "encoder"} else ()


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in MODULES])
def test_modules(name, monkeypatch):
    monkeypatch.setattr(check, "time_both", lambda *_: (1.0, 2.0))  # compiled, whatever is faster
    make, x, label = MODULES[name]
    torch.manual_seed(0)
    pair = Pair(lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3), net=make().double())
    before = [p.detach().clone() for p in pair.fused.parameters()]
    step = ll.fuse(loss, pair.fused, pair.optimizers[0])
    data = {"x": x, "label": label}
    values, extras = step.many(data)
    expected, others = eager(loss, pair.plain, pair.optimizers[1], data, updates=2)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(extras["scores"], others["scores"].detach(), rtol=0, atol=1e-12)
    pair.assert_equal(1e-12)
    assert not any(
        torch.equal(p, old) for p, old in zip(pair.fused.parameters(), before, strict=True)
    )
