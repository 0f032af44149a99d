"""What `fuse` was given: losses with modules and optimizers, followers, and how often each runs.

Everything that can be refused without running a loss is refused here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from loopless.fused import optimizers
from loopless.fused.blame import FuseError, first_line, name_of, user_line
from loopless.fused.reads import HOOKS, global_hooks
from loopless.refusals import check_count


@dataclass(frozen=True)
class Stage:
    """A loss, the module or tensor that it trains, and the optimizer that moves it."""

    loss: Callable
    module: torch.nn.Module | torch.Tensor
    optimizer: Any
    max_gradient_norm: float | None
    every: int

    def parameters(self) -> list[tuple[torch.Tensor, int, str]]:
        """Return the optimizer's parameters that require a gradient: tensor, group, name."""
        names = self._names()
        return [
            (tensor, number, names.get(id(tensor), f"parameter {place} of group {number}"))
            for number, group in enumerate(self.optimizer.param_groups)
            for place, tensor in enumerate(group["params"])
            if tensor.requires_grad
        ]

    def _names(self) -> dict[int, str]:
        if isinstance(self.module, torch.Tensor):
            return {id(self.module): "the tensor"}
        return {id(tensor): name for name, tensor in self.module.named_parameters()}

    def check(self) -> None:
        """Refuse parameters that the optimizer lacks or has moments of another shape for."""
        optimizers.check(self.optimizer, first_line(self.loss))
        held = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        named = (
            [("the tensor", self.module)]
            if isinstance(self.module, torch.Tensor)
            else list(self.module.named_parameters())
        )
        for name, parameter in named:
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                raise FuseError(
                    f"fuse: {name} has a gradient hook, which would never run "
                    f"({first_line(self.loss)})"
                )
            if parameter.requires_grad and id(parameter) not in held:
                raise FuseError(
                    f"fuse: {name} of {name_of(self.module)} requires a gradient, but "
                    f"{name_of(self.optimizer)} does not hold it ({first_line(self.loss)})"
                )
        for parameter, _, name in self.parameters():
            if not parameter.is_floating_point():
                raise FuseError(
                    f"fuse: {name} is {parameter.dtype}; parameters must be floats "
                    f"({first_line(self.loss)})"
                )
            for moment, tensor in self.optimizer.state.get(parameter, {}).items():
                if moment != "step" and tensor is not None and tensor.shape != parameter.shape:
                    raise FuseError(
                        f"fuse: {name} has shape {tuple(parameter.shape)}, but {moment} of "
                        f"{name_of(self.optimizer)} has {tuple(tensor.shape)}; make a new "
                        f"optimizer for a module of another shape ({first_line(self.loss)})"
                    )


@dataclass(frozen=True)
class Follow:
    """A module whose parameters move towards another's after each update."""

    target: torch.nn.Module
    source: torch.nn.Module
    tau: float
    every: int

    def pairs(self, kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the parameters or buffers of both modules, side by side."""
        targets, sources = (dict(getattr(m, f"named_{kind}")()) for m in (self.target, self.source))
        if targets.keys() != sources.keys():
            name = next(iter(targets.keys() ^ sources.keys()))
            raise FuseError(f"fuse: follow: {name} is in only one of the two modules")
        for name, tensor in targets.items():
            if tensor.shape != sources[name].shape:
                raise FuseError(
                    f"fuse: follow: {name} has shape {tuple(tensor.shape)} in the target and "
                    f"{tuple(sources[name].shape)} in the module that it follows"
                )
        return [(tensor, sources[name]) for name, tensor in targets.items()]


def parse(
    loss: Any, module: Any, optimizer: Any, max_gradient_norm: Any, follow: Any, every: Any
) -> tuple[list[Stage], list[Follow]]:
    """Return the stages and followers that the arguments of `fuse` describe."""
    if isinstance(loss, Sequence):
        if module is not None or optimizer is not None:
            raise TypeError(
                "fuse: several losses are a list of (loss, module, optimizer), and nothing else"
            )
        triples = [tuple(entry) for entry in loss]
    else:
        triples = [(loss, module, optimizer)]
    if not triples or any(len(entry) != 3 for entry in triples):
        raise TypeError("fuse: losses are a list of (loss, module, optimizer)")
    follow = [tuple(entry) for entry in follow]
    if any(len(entry) != 3 for entry in follow):
        raise TypeError("fuse: follow is a list of (target, module, tau)")
    several = isinstance(max_gradient_norm, list | tuple)
    norms: list = list(max_gradient_norm) if several else [max_gradient_norm] * len(triples)
    if len(norms) != len(triples):
        raise ValueError(
            f"fuse: max_gradient_norm has {len(norms)} entries for {len(triples)} losses"
        )
    for norm in norms:
        if norm is not None and not (isinstance(norm, int | float) and norm > 0):
            raise ValueError(f"fuse: max_gradient_norm must be above 0; received {norm!r}")
    counts = _every(every, len(triples), len(follow))
    stages = [
        _stage(triple[0], triple[1], triple[2], norm, count)
        for triple, norm, count in zip(triples, norms, counts, strict=False)
    ]
    followers = [
        _follow(entry[0], entry[1], entry[2], count)
        for entry, count in zip(follow, counts[len(triples) :], strict=True)
    ]
    return stages, followers


def _every(every: Any, losses: int, followers: int) -> list[int]:
    every = [] if every is None else list(every)
    if every and len(every) not in {losses, losses + followers}:
        raise ValueError(
            f"fuse: every has {len(every)} entries; it has one for each of {losses} losses, and "
            f"may go on with one for each of {followers} followers"
        )
    for count in every:
        for problem in check_count("every", count):
            raise ValueError(f"fuse: {problem}")
    return [int(count) for count in every] + [1] * (losses + followers - len(every))


def _stage(loss: Any, module: Any, optimizer: Any, norm: float | None, every: int) -> Stage:
    if not callable(loss):
        raise TypeError(f"fuse: the loss must be a function; received {name_of(loss)}")
    if hasattr(loss, "_torchdynamo_orig_callable") or isinstance(loss, torch.jit.ScriptFunction):
        raise FuseError(
            f"fuse: the loss is compiled or scripted; pass the function itself ({user_line()})"
        )
    if isinstance(module, torch.Tensor):
        if not (module.is_leaf and module.requires_grad):
            raise FuseError(
                "fuse: a tensor that is trained must be a leaf that requires a gradient"
            )
    else:
        check_module(module, first_line(loss))
    stage = Stage(loss, module, optimizer, norm, every)
    stage.check()
    return stage


def _follow(target: Any, source: Any, tau: Any, every: int) -> Follow:
    for module in (target, source):
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"fuse: follow takes modules; received {name_of(module)}")
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 <= tau <= 1:
        raise ValueError(f"fuse: follow: tau must be from 0 to 1; received {tau!r}")
    follow = Follow(target, source, float(tau), every)
    for kind in ("parameters", "buffers"):
        follow.pairs(kind)  # refuses modules that do not match
    return follow


def check_module(module: Any, where: str) -> None:
    """Refuse modules that cannot be traced, or whose meaning tracing would lose."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"fuse: the second argument must be a torch.nn.Module or a tensor; received "
            f"{name_of(module)}"
        )
    for kind, hooks in global_hooks().items():
        if hooks:
            raise FuseError(
                f"fuse: there is a global {_readable(kind)}, on all modules, which would never run "
                f"({where})"
            )
    for name, part in module.named_modules():
        called = f"{name or 'the module'} ({name_of(part)})"
        if isinstance(part, torch.jit.ScriptModule):
            raise FuseError(f"fuse: {called} is scripted; pass the module itself ({where})")
        if hasattr(part, "_orig_mod") or part._compiled_call_impl is not None:
            raise FuseError(f"fuse: {called} is compiled; pass the module itself ({where})")
        if isinstance(part, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            raise FuseError(f"fuse: {called} is distributed; fuse works in one process ({where})")
        for hooks in HOOKS:
            if getattr(part, hooks):
                kind = _readable(hooks)
                raise FuseError(f"fuse: {called} has a {kind}, which would never run ({where})")
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        for inner, tensor in tensors:
            if tensor.device.type != "cpu":
                raise FuseError(
                    f"fuse: {inner} of {called} is on {tensor.device}; fuse works on the CPU, and "
                    f"CUDA graphs are the known way on a GPU ({where})"
                )


def _readable(hooks: str) -> str:
    """Return "forward hook" for "_forward_hooks"."""
    return hooks.strip("_").removesuffix("s").replace("_", " ")
