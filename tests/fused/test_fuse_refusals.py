"""What `fuse` refuses: one sentence with the thing and the line, and nothing has moved."""

import functools
import re

import pytest
import torch
import torch.nn.functional as F
from support.fused import batches, first, memory, network, q_loss
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import loopless as ll
from loopless.fused.blame import FuseError

ONE = first(batches(1))
HERE = r"test_fuse_refusals\.py:\d+, in \w+"
LINE = r"\(fused\.py:\d+, in q_loss\)$"  # of the loss


def adam(net):
    return torch.optim.Adam(net.parameters())


def branch(net, batch):
    value = net(batch["obs"]).mean()
    return value if value > 0 else -value


def item(net, batch):
    return net(batch["obs"]).mean() * net(batch["obs"]).max().item()


def no_scalar(net, batch):
    return net(batch["obs"])


def no_tensor(net, batch):
    return 1.0


def no_parameter(net, batch):
    return batch["obs"].mean()


def noise(net, batch):
    return (net(batch["obs"]) + torch.randn(2)).mean()


def python_noise(net, batch):
    import random

    return net(batch["obs"]).mean() * random.random()


def unsupported(net, batch):
    return torch.linalg.svdvals(net(batch["obs"])).sum()


def writes(net, batch):
    with torch.no_grad():
        net[0].weight.clamp_(-0.01, 0.01)
    return net(batch["obs"]).mean()


def autocast(net, batch):
    with torch.autocast("cpu"):
        return net(batch["obs"]).mean()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (branch, rf"asks for the value of a tensor.*torch\.where.*{HERE}"),
        (item, rf"asks for the value of a tensor.*{HERE}"),
        (no_scalar, rf"must return a scalar tensor.*received shape \(6, 2\).*{HERE}"),
        (no_tensor, rf"must return a scalar tensor.*received float.*{HERE}"),
        (no_parameter, rf"depends on no parameter.*{HERE}"),
        (noise, rf"randn.* draws random numbers.*{HERE}.*random=True"),
        (python_noise, r"draws from random or numpy\.random"),
        (unsupported, rf"svd.* is not supported.*{HERE}"),
        (writes, rf"writes to 0\.weight.*{HERE}"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_losses(loss, message):
    net = network()
    optimizer = adam(net)
    step = ll.fuse(loss, net, optimizer)
    before, generator = memory(net, optimizer), torch.get_rng_state()
    with pytest.raises(FuseError, match=f"(?s)^fuse: .*{message}"):
        step(ONE)
    assert memory(net, optimizer) == before
    assert torch.equal(torch.get_rng_state(), generator)


def test_an_exception_of_the_loss_is_the_users():
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = adam(net)

    def loss(net, batch):
        return net(batch["obs"]).mean() * batch["missing"]

    step = ll.fuse(loss, net, optimizer)
    before = memory(net, optimizer)
    with pytest.raises(KeyError, match="missing"):
        step(ONE)
    assert memory(net, optimizer) == before


def with_hook(net):
    net[0].register_forward_hook(lambda *_: None)
    return net


def with_gradient_hook(net):
    net[0].weight.register_hook(lambda gradient: gradient)
    return net


def compiled_in_place(net):
    net.compile()
    return net


def distributed(net):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        return nn.parallel.DistributedDataParallel(net)
    finally:
        torch.distributed.destroy_process_group()


class Mine(torch.optim.Adam):
    pass


MODULES = {
    "no module": (lambda: 3, r"must be a torch\.nn\.Module or a tensor; received int"),
    "hook": (lambda: with_hook(network()), r"0 \(Linear\) has a forward hook"),
    "gradient hook": (lambda: with_gradient_hook(network()), r"0\.weight has a gradient hook"),
    "meta": (lambda: network().to("meta"), r"is on meta"),
    "not a leaf": (lambda: torch.ones(2, requires_grad=True) * 2, "must be a leaf"),
}


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    make, message = MODULES[name]
    with pytest.raises((FuseError, TypeError), match=f"^fuse: .*{message}"):
        ll.fuse(q_loss, make(), adam(network()))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (torch.jit.script, r"\(RecursiveScriptModule\) is scripted"),
        (torch.compile, r"\(OptimizedModule\) is compiled"),
        (compiled_in_place, r"\(Sequential\) is compiled"),
        (torch.nn.DataParallel, r"\(DataParallel\) is distributed"),
        (distributed, r"\(DistributedDataParallel\) is distributed"),
    ],
    ids=["scripted", "compiled", "compiled in place", "data parallel", "ddp"],
)
def test_wrapped_modules(make, message):
    net = network()
    wrapped = make(network())
    with pytest.raises(FuseError, match=f"^fuse: .*{message}.*{LINE}"):
        ll.fuse(q_loss, wrapped, torch.optim.Adam(wrapped.parameters()))
    step = ll.fuse(q_loss, net, adam(net))
    before = memory(net)
    with pytest.raises(FuseError, match=f"^fuse: .*{message}.*{LINE}"):
        step(ONE, wrapped)
    assert memory(net) == before


def hooked(net):
    optimizer = adam(net)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


OPTIMIZERS = {
    "lbfgs": (lambda net: torch.optim.LBFGS(net.parameters()), "LBFGS is not supported"),
    "subclass": (lambda net: Mine(net.parameters()), "Mine is not supported.*Adam, AdamW, SGD"),
    "hook": (hooked, "has a hook on step"),
    "tensor": (lambda net: torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1)), "is a tensor"),
    "differentiable": (
        lambda net: torch.optim.Adam(net.parameters(), differentiable=True),
        "differentiable=True",
    ),
    "lacking": (
        lambda net: torch.optim.Adam(net[0].parameters()),
        r"2\.weight of Sequential requires a gradient, but Adam does not hold it",
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    net = network()
    make, message = OPTIMIZERS[name]
    with pytest.raises(FuseError, match=f"^fuse: .*{message}.*{LINE}"):
        ll.fuse(q_loss, net, make(net))


SETTINGS = {
    "check": (
        {"check": "sometimes"},
        "check='sometimes' is unknown; choose first, always or never",
    ),
    "on_nan": ({"on_nan": "raise"}, "on_nan='raise' is unknown; choose stop or skip"),
    "norm": ({"max_gradient_norm": -1}, "max_gradient_norm must be above 0; received -1"),
    "norms": ({"max_gradient_norm": [1, 2]}, "has 2 entries for 1 losses"),
    "every": ({"every": [0]}, "every must be an integer of at least 1; received 0"),
    "everies": ({"every": [1, 2, 3]}, "every has 3 entries"),
    "follow": ({"follow": [(1, 2)]}, r"follow is a list of \(target, module, tau\)"),
    "tau": ({"follow": [(network(), network(), 2)]}, "tau must be from 0 to 1; received 2"),
    "shapes": ({"follow": [(network(), nn.Linear(3, 2), 1.0)]}, "is in only one of the two"),
    "losses": ({"loss": [(q_loss, network())]}, r"a list of \(loss, module, optimizer\)"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name):
    options, message = SETTINGS[name]
    net = network()
    arguments = {"loss": q_loss, "module": net, "optimizer": adam(net)} | options
    if "loss" in options:
        del arguments["module"], arguments["optimizer"]
    with pytest.raises((ValueError, TypeError), match=f"^fuse: .*{message}"):
        ll.fuse(**arguments)


@pytest.fixture(scope="module")
def fused():
    net, target = network(), network(seed=2)
    optimizer = adam(net)
    step = ll.fuse(q_loss, net, optimizer, check="never")
    step.many(batches(2), target)
    return net, target, optimizer, step


def without(name):
    return {key: value for key, value in batches(2).items() if key != name}


CALLS = {
    "lengths": ((without("done") | {"done": batches(3)["done"]},), {}, "differ in K.*done'] 3"),
    "number": ((without("done") | {"done": 0.5},), {}, r"batch\['done'\] is a number"),
    "text": ((without("done") | {"done": "no"},), {}, r"batch\['done'\] is str"),
    "device": ((without("obs") | {"obs": torch.zeros(2, 3, device="meta")},), {}, "is on meta"),
    "none": ((batches(0),), {}, "K is 0"),
    "rates": ((batches(2),), {"learning_rates": [0.1]}, "learning_rates must be 2 numbers"),
    "indices": ((first(batches(1)),), {"indices": [[0.5]]}, r"indices is list"),
    "floats": ((first(batches(1)),), {"indices": torch.rand(2, 3)}, "must be whole numbers"),
    "range": ((first(batches(1)),), {"indices": torch.tensor([[6]])}, "from 0 to 5; received 6"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(fused, name):
    net, target, optimizer, step = fused
    arguments, options, message = CALLS[name]
    before, count = memory(net, optimizer), step.updates
    with pytest.raises((ValueError, TypeError), match=rf"^fuse: .*{message}.*\({HERE}\)$"):
        step.many(*arguments, target, **options)
    assert memory(net, optimizer) == before
    assert step.updates == count


def test_too_few_arguments(fused):
    with pytest.raises(TypeError, match=r"missing a required argument: 'target' .*in q_loss"):
        fused[3].many(batches(2))


def test_a_gradient_that_waits(fused):
    net, target, optimizer, step = fused
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before = memory(net, optimizer)
    with pytest.raises(FuseError, match=rf"0\.weight has a gradient already.*zero_grad.*{HERE}"):
        step.many(batches(2), target)
    assert memory(net, optimizer) == before
    net[0].weight.grad = None


HOOKED = {
    "module": (lambda net, _: net[0].register_forward_hook, r"0 \(Linear\) has a forward hook"),
    "module, before": (
        lambda net, _: net[0].register_forward_pre_hook,
        r"0 \(Linear\) has a forward pre hook",
    ),
    "module, of gradients": (
        lambda net, _: net[0].register_full_backward_hook,
        r"0 \(Linear\) has a backward hook",
    ),
    "module, before gradients": (
        lambda net, _: net[0].register_full_backward_pre_hook,
        r"0 \(Linear\) has a backward pre hook",
    ),
    "parameter": (lambda net, _: net[2].bias.register_hook, r"2\.bias has a gradient hook"),
    "accumulated": (
        lambda net, _: net[2].bias.register_post_accumulate_grad_hook,
        r"2\.bias has a gradient hook",
    ),
    "global": (
        lambda *_: torch.nn.modules.module.register_module_forward_hook,
        "there is a global forward hook, on all modules",
    ),
    "global, before": (
        lambda *_: torch.nn.modules.module.register_module_forward_pre_hook,
        "there is a global forward pre hook, on all modules",
    ),
    "global, of gradients": (
        lambda *_: torch.nn.modules.module.register_module_full_backward_hook,
        "there is a global backward hook, on all modules",
    ),
    "global, before any step": (
        lambda *_: register_optimizer_step_pre_hook,
        r"Adam has a hook on step\(\)",
    ),
    "global, after any step": (
        lambda *_: register_optimizer_step_post_hook,
        r"Adam has a hook on step\(\)",
    ),
    "before step": (lambda _, adam: adam.register_step_pre_hook, r"Adam has a hook on step\(\)"),
    "after step": (lambda _, adam: adam.register_step_post_hook, r"Adam has a hook on step\(\)"),
}


@pytest.mark.parametrize("name", HOOKED)
def test_a_hook_that_comes_later(fused, name):
    net, target, optimizer, step = fused
    register, message = HOOKED[name]
    of_modules = "step" not in name and name not in {"parameter", "accumulated"}
    before, where = memory(net, optimizer), LINE if of_modules else rf"\({HERE}\)$"
    with register(net, optimizer)(lambda *_: None):
        with pytest.raises(FuseError, match=f"^fuse: {message}.*{where}"):
            step.many(batches(2), target)
        assert memory(net, optimizer) == before
    step.many(batches(2), target)


def test_a_global_hook_that_came_first():
    net = network()
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None):
        with pytest.raises(FuseError, match=rf"a global forward hook.*{LINE}"):
            ll.fuse(q_loss, net, adam(net))
        with pytest.raises(ValueError, match="forward: there are global forward hooks"):
            ll.forward(net)


def test_a_module_that_changed_its_shape(fused):
    net, target, optimizer, step = fused
    old = net[0].weight.data
    net[0].weight.data = torch.zeros(8, 4)
    before = memory(net, optimizer)
    message = rf"0\.weight has shape \(8, 4\), but exp_avg of Adam has \(8, 3\).*{LINE}"
    with pytest.raises(FuseError, match=message):
        step.many(batches(2), target)
    assert memory(net, optimizer) == before
    net[0].weight.data = old
    step.many(batches(2), target)


def test_parameters_that_the_optimizer_has_lost(fused):
    net, target, _, step = fused
    old = net[0]
    net[0] = nn.Linear(3, 8)
    with pytest.raises(FuseError, match=rf"0\.weight of Sequential requires a gradient.*{LINE}"):
        step.many(batches(2), target)
    net[0] = old


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": torch.tensor(0.1)}, "the rate or a beta of Adam is a tensor"),
        ({"betas": (torch.tensor(0.9), 0.99)}, "the rate or a beta of Adam is a tensor"),
        ({"differentiable": True}, "Adam with differentiable=True is not supported"),
    ],
    ids=["rate", "beta", "differentiable"],
)
def test_settings_of_an_optimizer_that_come_later(fused, change, message):
    net, target, optimizer, step = fused
    group = optimizer.param_groups[0]
    old = {name: group[name] for name in change}
    group.update(change)
    before = memory(net, optimizer)
    with pytest.raises(FuseError, match=f"^fuse: {message}.*{LINE}"):
        step.many(batches(2), target)
    assert memory(net, optimizer) == before
    group.update(old)
    step.many(batches(2), target)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_a_scripted_module_in_a_closure():
    net, target = network(), torch.jit.script(network())

    def loss(net, batch):
        return F.mse_loss(net(batch["obs"]), target(batch["obs"]).detach())

    with pytest.raises(FuseError, match=rf"is scripted.*{HERE}"):
        ll.fuse(loss, net, adam(net))(ONE)


def test_a_compiled_loss():
    net = network()
    with pytest.raises(FuseError, match=rf"the loss is compiled.*{HERE}"):
        ll.fuse(torch.compile(no_parameter), net, adam(net))


def test_autocast(fused):
    _, target, _, step = fused
    with torch.autocast("cpu"), pytest.raises(FuseError, match=f"autocast is on.*{HERE}"):
        step.many(batches(2), target)
    net = network()
    with pytest.raises(FuseError, match=f"autocast.*{HERE}"):
        ll.fuse(autocast, net, adam(net))(ONE)


def test_a_view_of_a_parameter_that_would_go_stale():
    net = network()
    flat = net[0].weight.detach().view(-1)

    def loss(net, batch):
        return F.mse_loss(net(batch["obs"]).mean(), flat.mean())

    with pytest.raises(FuseError, match=r"view of 0\.weight"):
        ll.fuse(loss, net, adam(net))(ONE)


HIDDEN = {"scale": torch.ones(2)}


@functools.lru_cache
def cached_scale():
    return torch.ones(2)


def through_a_name(net, batch):
    return (net(batch["obs"]) * HIDDEN["".join(["sc", "ale"])]).mean()


def through_a_cache(net, batch):
    return (net(batch["obs"]) * cached_scale()).mean()


@pytest.mark.parametrize("loss", [through_a_name, through_a_cache])
def test_a_tensor_whose_replacement_would_go_unnoticed(loss):
    net = network()
    message = rf"reads a tensor of shape \(2,\).*{HERE}.*pass it in the batch"
    with pytest.raises(FuseError, match=message):
        ll.fuse(loss, net, adam(net))(ONE)


def test_messages_are_one_sentence():
    net = network()
    with pytest.raises(FuseError) as error:
        ll.fuse(branch, net, adam(net))(ONE)
    assert re.fullmatch(r"fuse: [^\n]+", str(error.value))
