"""NaN, randomness, the first call's check, eager fallback, threads, forks and the user's JAX."""

import copy
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings

import gymnasium
import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from support.fused import Pair, assert_states_equal, batches, eager, first, memory, network, q_loss
from torch import nn
from torch.utils.data import DataLoader

import loopless as ll
from loopless.fused import check, lowering, optimizers
from loopless.fused.blame import FuseError
from loopless.fused.memory import Memory


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def mse(net, batch):
    return F.mse_loss(net(batch["obs"])[:, 0], batch["reward"])


# --- NaN -------------------------------------------------------------------------------------


def poisoned(update):
    data = batches(4, torch.float64)
    data["reward"][update, 2] = float("nan")
    return data


def normalized():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4)).double()


@pytest.mark.parametrize("slow", [False, True], ids=["compiled", "eager"])
def test_stop_names_the_update_and_leaves_everything(slow, monkeypatch):
    pair = Pair(lambda p: torch.optim.Adam(p, lr=0.1), net=normalized())
    step = ll.fuse(mse, pair.fused, pair.optimizers[0], check="never")
    if slow:
        monkeypatch.setattr(check, "time_both", lambda *_: (2.0, 1.0))
        with pytest.warns(UserWarning, match=r"4 updates take 2e\+03 ms compiled and 1e\+03 ms in"):
            step.many(batches(4, torch.float64))
    else:
        step.many(batches(4, torch.float64))
    before = memory(pair.fused, pair.optimizers[0])
    with pytest.raises(
        FuseError, match=r"update 3 of this call is not finite: the loss is nan.*mse"
    ):
        step.many(poisoned(2))
    assert memory(pair.fused, pair.optimizers[0]) == before
    assert step.updates == 4


@pytest.mark.parametrize("slow", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("update", [0, 2])
def test_skip_leaves_the_update_out(update, slow, monkeypatch):
    pair = Pair(lambda p: torch.optim.Adam(p, lr=0.1), net=normalized())
    step = ll.fuse(mse, pair.fused, pair.optimizers[0], on_nan="skip", check="never")
    data = poisoned(update)
    if slow:
        monkeypatch.setattr(check, "time_both", lambda *_: (2.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = step.many(data)
    assert step.programs[0].compiled != slow
    kept = [k for k in range(4) if k != update]
    rest = {name: values[kept] for name, values in data.items()}
    expected, _ = eager(mse, pair.plain, pair.optimizers[1], rest, updates=3)
    torch.testing.assert_close(values[kept], expected, rtol=0, atol=1e-12)
    assert values[update].isnan()
    pair.assert_equal(1e-12)


def with_outputs(net, batch):
    outputs = net(batch["obs"])[:, 0]
    return F.mse_loss(outputs, batch["reward"]), outputs


def test_the_first_calls_check_bears_an_update_that_is_not_finite():
    net, data = network(), batches(3, rows=64)
    optimizer = torch.optim.Adam(net.parameters())
    data["reward"][0, 2] = float("nan")
    before = memory(net, optimizer)
    with pytest.raises(FuseError, match=r"update 1 of this call is not finite.*in with_outputs"):
        ll.fuse(with_outputs, net, optimizer).many(data)
    assert memory(net, optimizer) == before
    values, outputs = ll.fuse(with_outputs, net, optimizer, on_nan="skip").many(data)
    assert values.isfinite().tolist() == [False, True, True]
    assert outputs.isfinite().all()


# --- eager where it is faster ----------------------------------------------------------------


def test_eager_goes_on_where_it_is_faster(monkeypatch):
    monkeypatch.setattr(check, "time_both", lambda *_: (2.0, 1.0))
    pair = Pair(lambda p: torch.optim.Adam(p, lr=0.1), torch.float64)
    step = ll.fuse(q_loss, pair.fused, pair.optimizers[0], max_gradient_norm=0.5)
    data = batches(3, torch.float64)
    rates = [0.1, 0.2, 0.3]
    with pytest.warns(UserWarning, match="so these run in eager.*in q_loss"):
        values, extras = step.many(data, pair.target, learning_rates=rates)
    assert not step.programs[0].compiled
    for update, rate in enumerate(rates):
        pair.optimizers[1].param_groups[0]["lr"] = rate
        one = {name: values[update : update + 1] for name, values in data.items()}
        eager(q_loss, pair.plain, pair.optimizers[1], one, pair.target, updates=1, max_norm=0.5)
    pair.assert_equal(1e-12)
    assert values.shape == (3,)
    assert extras["td"].shape == (3, 6)


# --- the first call checks itself ------------------------------------------------------------


def test_a_wrong_operator_is_noticed_before_anything_moves(monkeypatch):
    wrong = dict(lowering.OPERATORS)
    wrong["aten.tanh.default"] = lambda x: x
    monkeypatch.setattr(lowering, "OPERATORS", wrong)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    before = memory(net, optimizer)
    with pytest.raises(FuseError, match=r"the loss differs by .* from eager PyTorch.*in mse"):
        ll.fuse(mse, net, optimizer)(first(batches(1)))
    assert memory(net, optimizer) == before


def test_a_wrong_optimizer_is_noticed_before_anything_moves(monkeypatch):
    right = optimizers._adam

    def wrong(form, weight, g, moments, numbers, xp):
        return right(form, weight, 2 * g, [m * 0.5 for m in moments], numbers, xp)

    monkeypatch.setattr(optimizers, "_adam", wrong)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), eps=1.0)
    with pytest.raises(FuseError, match=r"Adam moves 0\.weight differently"):
        ll.fuse(mse, net, optimizer)(first(batches(1)))


def test_first_checks_once_always_every_call_and_never_none(monkeypatch):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = [ll.fuse(mse, net, optimizer, check=when) for when in ("first", "always", "never")]
    one = first(batches(1))
    for step in steps[:2]:
        step(one)
    monkeypatch.setattr(check, "_evaluate", lambda captured, leaves: [np.float32(7.0)])
    steps[0](one)
    steps[2](one)
    before = memory(net)
    with pytest.raises(FuseError, match="the loss differs"):
        steps[1](one)
    assert memory(net) == before


def squares(net, batch):
    return (net(batch["obs"])[:, 0] - batch["reward"]).pow(2).mean()


def test_a_double_field_is_compared_as_coarsely_as_the_single_net_that_reads_it():
    net, data = network(), first(batches(1, rows=64))
    data["reward"] = data["reward"].double()
    step = ll.fuse(squares, net, torch.optim.SGD(net.parameters(), lr=0.1))
    assert step(data).dtype is torch.float64


@pytest.mark.parametrize("unread", [torch.float32, torch.float16])
def test_a_coarse_field_that_the_loss_does_not_read_loosens_nothing(unread, monkeypatch):
    right = check._evaluate
    monkeypatch.setattr(check, "_evaluate", lambda *a: [x * (1 + 1e-7) for x in right(*a)])
    net, data = network(torch.float64), first(batches(1, torch.float64))
    data["next_obs"] = data["next_obs"].to(unread)
    with pytest.raises(FuseError, match="the loss differs by"):
        ll.fuse(squares, net, torch.optim.SGD(net.parameters(), lr=0.1))(data)


# --- randomness ------------------------------------------------------------------------------


def test_random_losses_draw_anew_by_the_same_law():
    def loss(net, batch):
        return net(batch["obs"]).sum() * 0 + net[0].bias.sum() * 0 + torch.randn(50).mean(), {
            "draws": torch.rand(20)
        }

    net = network()
    step = ll.fuse(loss, net, torch.optim.SGD(net.parameters(), lr=0.1), random=True)
    torch.manual_seed(3)
    values, extras = step.many(batches(40))
    draws = extras["draws"]
    assert len(draws.unique()) > 790
    assert abs(float(draws.mean()) - 0.5) < 0.05
    assert abs(float(draws.var()) - 1 / 12) < 0.01
    assert abs(float(values.std()) - 50**-0.5) < 0.05
    torch.manual_seed(3)
    again, _ = step.many(batches(40))
    assert torch.equal(values, again)
    other, _ = step.many(batches(40))
    assert not torch.equal(values, other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x * np.nan, "extra 0 is finite in eager PyTorch but not compiled"),
        (lambda x: x[:1], r"extra 0 has shape \(1,\) compiled and \(6,\) in eager"),
    ],
    ids=["not finite", "shape"],
)
def test_wrong_draws_are_noticed_before_anything_moves(wrong, message, monkeypatch):
    def loss(net, batch):
        return squares(net, batch), {"draws": torch.rand(6)}

    mutants = dict(lowering.RANDOM)
    right = mutants["aten.rand.default"]
    mutants["aten.rand.default"] = lambda *args, **options: wrong(right(*args, **options))
    monkeypatch.setattr(lowering, "RANDOM", mutants)
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    before = memory(net, optimizer)
    with pytest.raises(FuseError, match=f"{message}.*in loss"):
        ll.fuse(loss, net, optimizer, random=True)(first(batches(1)))
    assert memory(net, optimizer) == before


def noisy_critic(net, batch):
    """Smooth the targets by noise, as TD3 does, and drop some of the units."""
    hidden = F.dropout(torch.tanh(net[0](batch["obs"])), 0.3)
    noise = (0.2 * torch.randn_like(batch["reward"])).clamp(-0.5, 0.5)
    return F.mse_loss(net[2](hidden)[:, 0], batch["reward"] + noise), {"noise": noise}


@pytest.mark.parametrize("wrong", ["aten.clamp.default", "aten.mm.default"])
def test_a_random_loss_is_compared_under_equal_draws(wrong, monkeypatch):
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    right = lowering.OPERATORS[wrong]
    mutants = lowering.OPERATORS | {wrong: lambda *args, **options: 1.01 * right(*args, **options)}
    monkeypatch.setattr(lowering, "OPERATORS", mutants)
    before, drawn = memory(net, optimizer), torch.get_rng_state()
    with pytest.raises(FuseError, match=r"differs by .* from eager PyTorch.*in noisy_critic"):
        ll.fuse(noisy_critic, net, optimizer, random=True)(first(batches(1)))
    assert memory(net, optimizer) == before
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_random_loss_that_is_right_is_not_refused():
    net = network()
    step = ll.fuse(noisy_critic, net, torch.optim.Adam(net.parameters()), random=True)
    assert step(first(batches(1)))[0].isfinite()


def rounded(net, batch):
    """Compute in a coarser type than the module's."""
    hidden = torch.tanh(net[0](batch["obs"])).bfloat16()
    return F.mse_loss((hidden @ net[2].weight.bfloat16().t()).float()[:, 0], batch["reward"])


def test_a_cast_to_a_coarser_type_is_compared_as_coarsely(monkeypatch):
    net, one = network(), first(batches(1, rows=64))
    optimizer = torch.optim.SGD([*net.parameters()], lr=0.1)
    right = check._evaluate
    for error, refused in ((0.01, False), (0.2, True)):
        monkeypatch.setattr(
            check, "_evaluate", lambda *a, e=error: [x * (1 + e) for x in right(*a)]
        )
        step = ll.fuse(rounded, net, optimizer)
        if refused:
            with pytest.raises(FuseError, match="the loss differs by"):
                step(one)
        else:
            step(one)


def test_the_first_call_leaves_the_generators():
    net = network()
    step = ll.fuse(mse, net, torch.optim.SGD(net.parameters(), lr=0.1))
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    step(first(batches(1)))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


@pytest.mark.slow
def test_a_random_loss_draws_a_seed_and_nothing_else_from_the_generator():
    net = network()
    step = ll.fuse(noisy_critic, net, torch.optim.SGD(net.parameters(), lr=0.0), random=True)
    torch.manual_seed(3)
    torch.randint(2**53, ())
    expected, results = torch.get_rng_state(), []
    for _ in range(2):  # the first call traces, checks and times, the second does not
        torch.manual_seed(3)
        results.append(step(first(batches(1)))[0])
        assert torch.equal(torch.get_rng_state(), expected)
    assert torch.equal(*results)
    bad = first(batches(1)) | {"reward": torch.full((6,), float("nan"))}
    with pytest.raises(FuseError, match="not finite"):
        step(bad)
    assert torch.equal(torch.get_rng_state(), expected)  # as before the call


# --- the process -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared():
    pair = Pair(sgd)
    step = ll.fuse(mse, pair.fused, pair.optimizers[0], check="never")
    step(first(batches(1)))
    return pair, step


def test_threads_take_turns(shared, monkeypatch):
    pair, step = shared
    read = Memory.read

    def read_and_wait(memory, passed):
        vectors = read(memory, passed)
        time.sleep(1e-3)  # without a lock, another thread updates here, and its update is lost
        return vectors

    monkeypatch.setattr(Memory, "read", read_and_wait)
    before, one = step.updates, first(batches(1))
    plain = copy.deepcopy(pair.fused)
    optimizer = sgd(plain.parameters())
    optimizer.load_state_dict(copy.deepcopy(pair.optimizers[0].state_dict()))
    threads = [threading.Thread(target=lambda: [step(one) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert step.updates == before + 40
    same = {name: torch.stack([values] * 40) for name, values in one.items()}
    eager(mse, plain, optimizer, same, updates=40)
    assert_states_equal(pair.fused, plain, 1e-5)


def test_a_forked_child_is_refused(shared):
    _, step = shared
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python warn about forks
        child = os.fork()
    if not child:
        try:
            step(first(batches(1)))
        except FuseError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert b"works only in the process that made it" in os.read(reader, 1000)
    step(first(batches(1)))


def forked_square(x):
    return os.getpid(), float(torch.tensor(x).square())


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_processes_that_fork_after_the_first_call_work(shared):
    """A pool, a DataLoader and an AsyncVectorEnv: their children do not call the step."""
    pair, step = shared
    with multiprocessing.get_context("fork").Pool(1) as pool:
        process, value = pool.apply_async(forked_square, (3.0,)).get(timeout=30)
    assert process != os.getpid()
    assert value == 9.0
    rows = [first(batches(1, rows=1, seed=seed)) for seed in range(4)]
    rows = [{name: value[0] for name, value in row.items()} for row in rows]
    loader = DataLoader(
        rows, batch_size=2, num_workers=1, multiprocessing_context="fork", timeout=30
    )
    before = step.updates
    for number, batch in enumerate(loader):
        whole = {name: torch.stack([row[name] for row in rows[2 * number :][:2]]) for name in batch}
        expected = mse(pair.fused, whole).detach()
        torch.testing.assert_close(step(batch), expected, rtol=0, atol=1e-5)
    assert step.updates == before + 2
    make = [lambda: gymnasium.make("CartPole-v1")] * 2
    forked, plain = AsyncVectorEnv(make, context="fork"), SyncVectorEnv(make)
    try:
        forked.reset_async(seed=0)
        ours, (theirs, _) = forked.reset_wait(timeout=30)[0].copy(), plain.reset(seed=0)
        np.testing.assert_array_equal(ours, theirs)
        for _ in range(3):
            step(first(batches(1)))
            forked.step_async(np.array([0, 1]))
            ours, theirs = forked.step_wait(timeout=30)[0], plain.step(np.array([0, 1]))[0]
            np.testing.assert_array_equal(ours, theirs)
    finally:
        forked.close()
        plain.close()


@pytest.mark.slow
def test_the_users_jax_stays_as_it_was():
    code = """
import os, jax, jax.numpy as jnp, torch, loopless as ll
flags = lambda: {k: v for k, v in os.environ.items() if k.startswith(("JAX", "XLA"))}
values, before = dict(jax.config.values), flags()
net = torch.nn.Linear(3, 1).double()
step = ll.fuse(lambda n, b: n(b).mean(), net, torch.optim.Adam(net.parameters()))
step.many(torch.ones(2, 5, 3, dtype=torch.float64))
assert dict(jax.config.values) == values and flags() == before
assert jnp.ones(3).dtype == jnp.float32 and jnp.arange(3).dtype == jnp.int32
assert jax.jit(lambda x: x + 1)(jnp.ones(3)).devices() == {jax.devices()[0]}
print("same")
"""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    clean["XLA_FLAGS"] = "--xla_cpu_enable_fast_math=false"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, env=clean, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_int64_stays_int64_without_x64(shared):
    def loss(net, batch):
        return net(batch["obs"]).mean(), batch["big"] + 1

    pair, _ = shared
    step = ll.fuse(loss, pair.fused, pair.optimizers[0], check="never")
    big = torch.tensor([2**40 + 1])
    with jax.enable_x64(False):
        _, out = step({"obs": torch.zeros(2, 3), "big": big})
        assert jax.numpy.arange(2).dtype == np.int32
    assert out.dtype is torch.int64
    assert out.item() == 2**40 + 2


def test_the_batch_may_be_reused_at_once(shared):
    _, step = shared
    batch = first(batches(1))
    value = step(batch)
    kept = value.clone()
    for tensor in batch.values():
        tensor.zero_()
    step(batch)
    assert torch.equal(value, kept)
    assert not value.requires_grad


def test_programs_are_listed(shared):
    pair, _ = shared
    step = ll.fuse(mse, pair.fused, pair.optimizers[0], check="never")
    for updates, rows in ((2, 6), (2, 6), (3, 6), (2, 5)):
        step.many(batches(updates, rows=rows))
    assert [p.updates for p in step.programs] == [2, 3, 2]
    assert step.programs[2].shapes["batch['obs']"] == (2, 5, 3)
    assert all(p.seconds > 0 and p.eager_seconds > 0 for p in step.programs)
