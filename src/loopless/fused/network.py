"""A PyTorch module as a table of operations that stays in step with the module.

The module's forward is followed by PyTorch's own tracer (`torch.fx`), which calls it once with a
stand-in for the observations, so that nested modules, functional forms, dueling heads and shared
trunks come out as one list. `layers` says what each entry becomes. The table holds addresses of
parameters; `Network.is_current` compares them, cheaply, with what the module has at each call.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx.node import map_arg

from loopless.fused.layers import CHANGES_WIDTH, FUNCTIONS, IN_PLACE, LAYERS
from loopless.fused.table import Stored, Table, Unreadable, Value
from loopless.refusals import refuse

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_INSTEAD = "Call the module itself under torch.no_grad() instead, or pass the part without such a"


class Network:
    """The table of modules that read the same observations, and what it was made from.

    end: returns the last rows of the table, which say what to do with the outputs: for each module
    a `Value`, or a tuple or dict of them. A tensor among the modules is its own output.
    """

    program: np.ndarray  # the table with the addresses in it
    width: int  # of an observation
    shape: tuple[int]  # of an observation
    products: int  # of two numbers, for one observation
    is_current: Callable[[], bool]  # whether the table still describes the modules

    def __init__(
        self,
        where: str,
        modules: Sequence[nn.Module | torch.Tensor],
        end: Callable[[Table, list[Any]], list[list[int]]],
    ) -> None:
        self.where, self.modules, self.end = where, modules, end
        for module in modules:
            if not isinstance(module, nn.Module | torch.Tensor):
                name = type(module).__name__
                raise TypeError(f"{where}: received {name}, which is no torch.nn.Module.")
        self._build()

    def _has_same_modes(self) -> bool:
        """Return whether what few modules have is as it was: a mode, a parameter left out."""
        return [module.training for module in self._modes] == self._training and not any(
            stored.tensor is not None for stored in self._absent
        )

    def refresh(self) -> None:
        """Bring the table up to date: only the addresses if nothing but memory has changed."""
        shapes = [getattr(holder.get(name), "shape", None) for holder, name in self._tensors]
        same_layers = self._children == self._children_then and not any(self._hooks)
        if shapes == self._shapes and same_layers and self._has_same_modes():
            self._point()
        else:
            self._build()

    def _build(self) -> None:
        reader = _Reader(self.where)
        outputs = [reader.read(module) for module in self.modules]
        table = reader.table
        assert reader.observation is not None
        self.width, self.products = reader.observation.width, table.products
        self.shape = (self.width,)
        last = self.end(table, outputs)
        rows = [table.row(table.size), *table.loads, *table.steps]
        rows += [table.row(*row) for row in last]
        at = {id(row): i for i, row in enumerate(rows)}
        self._table, self._numbers = np.array(rows, np.int64), table.numbers
        self._places = [(at[id(slot.row)], slot.column) for slot in table.slots]
        self._tensors = [(slot.stored.holder, slot.stored.name) for slot in table.slots]
        self._shapes = [slot.stored.tensor.shape for slot in table.slots]
        self._absent = table.absent
        visited = reader.visited.values()
        self._children = [module._modules for module in visited if module._modules]
        self._children_then = [dict(children) for children in self._children]
        self._modes = [module for module in visited if _reads_mode(module)]
        self._training = [module.training for module in self._modes]
        self._hooks = [h for m in visited for h in (m._forward_hooks, m._forward_pre_hooks)]
        self._hooks += _global_hooks()
        more = {"children": self._children, "then": self._children_then, "hooks": self._hooks}
        terms = ["children == then", "not any(hooks)"]
        if self._modes or self._absent:
            more["has_same_modes"] = self._has_same_modes
            terms.append("has_same_modes()")
        self._names, self.is_current = _comparison(self._tensors, more, terms)
        self._point()

    def _point(self) -> None:
        """Write the addresses of all parameters into a new copy of the table."""
        tensors = [holder[name] for holder, name in self._tensors]
        names = [name for _, name in self._tensors]
        refuse(self.where, _problems(names, tensors), error=TypeError)
        program = self._table.copy()
        for (row, column), tensor in zip(self._places, tensors, strict=True):
            program[row, column] = tensor.data_ptr()
        self._held = [tensor.detach() for tensor in tensors]
        for i, tensor in enumerate(tensors):
            self._names[f"address_{i}"] = tensor.data_ptr()
        self.program = program


def _comparison(
    tensors: list[tuple[dict, str]], more: dict[str, Any], last: list[str]
) -> tuple[dict[str, Any], Callable[[], bool]]:
    """Return a function that compares addresses, sizes and strides with the names beside it.

    The memory that was read is held, so that an equal address means the same memory and dtype. The
    size of a vector need not be compared, as its layer's matrix has changed with it; nor the rows
    of a matrix with as many entries as before, if the layer before it has as many outputs. `last`
    are further terms, on the names in `more`. The function is written out, because it runs at every
    call: a loop would take half as long again.
    """
    names, terms = dict(more), []
    for i, (holder, name) in enumerate(tensors):
        names[f"holder_{i}"], names[f"size_{i}"] = holder, holder[name].numel()
        term = f"(tensor := holder_{i}[{name!r}]).data_ptr() == address_{i}"
        if holder[name].ndim > 1:
            first = not any("stride" in other for other in terms)
            layout = f"stride() == stride_{i}" if first else "is_contiguous()"
            term += f" and tensor.numel() == size_{i} and tensor.{layout}"
            names[f"stride_{i}"] = holder[name].stride()
        terms.append(term)
    exec(_CURRENT.format(" and ".join([*terms, *last])), names)
    return names, names["is_current"]


_CURRENT = """def is_current():
    try:
        return {}
    except (KeyError, AttributeError):  # a parameter is gone
        return False
"""


def _global_hooks() -> list[dict]:
    """Return the forward hooks of all modules there are."""
    home = vars(torch.nn.modules.module)
    return [home["_global_forward_hooks"], home["_global_forward_pre_hooks"]]


def _reads_mode(module: nn.Module) -> bool:
    """Return whether a module may compute something else in training mode."""
    return not type(module).__module__.startswith("torch.nn") or type(module) in (
        nn.Dropout,
        nn.BatchNorm1d,
    )


def _problems(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> list[str]:
    problems = []
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.device.type != "cpu":
            problems.append(f'"{name}" is on {tensor.device}; move the module to the CPU')
        elif tensor.dtype != torch.float32:
            problems.append(f'"{name}" is {tensor.dtype}; call float() on the module')
        elif not tensor.is_contiguous():
            problems.append(f'"{name}" is not contiguous; call contiguous() on it')
    return list(dict.fromkeys(problems))


class _Reader:
    """Follows the forward of one module after another and fills a table."""

    def __init__(self, where: str) -> None:
        self.where, self.table = where, Table()
        self.visited: dict[int, nn.Module] = {}  # by id: every module on the way to an operation
        self.observation: Value | None = None

    def read(self, module: nn.Module | torch.Tensor) -> Any:
        """Add a module's operations and return its output."""
        if isinstance(module, torch.Tensor):
            return self.table.value(Stored({"tensor": module}, "tensor"))
        root = nn.Sequential(module)  # so that a module that is one layer is traced as a layer
        self._visit(module)
        env: dict[Any, Any] = {}
        for node in _trace(self.where, module, root).nodes:
            try:
                env[node] = self._read_node(node, root, env)
            except Unreadable as problem:
                refuse(self.where, [f"{_name(node)} {problem}"])
            if node.op == "output":
                return env[node]

    def _read_node(self, node: torch.fx.Node, root: nn.Module, env: dict[Any, Any]) -> Any:
        if node.op == "placeholder":
            return self._observe(node, root)
        args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "output":
            return self._output(args[0])
        if node.op == "get_attr":
            return self._stored(root, str(node.target))
        if node.op == "call_module":
            layer = self._walk(root, str(node.target).split("."))
            handler, in_place = LAYERS.get(type(layer)), getattr(layer, "inplace", False)
            if handler is None:
                name = type(layer).__name__
                raise Unreadable(f"is {name}, which {self.where} does not know. {_INSTEAD} layer")
            result = self._call(handler, *(self.table.value(x) for x in args), layer, **kwargs)
        else:
            handler, in_place = FUNCTIONS.get(node.target), node.target in IN_PLACE
            if handler is None:
                raise Unreadable(f"is not known to {self.where}. {_INSTEAD} step")
            result = self._call(handler, *args, **kwargs)
            in_place = in_place or kwargs.get("inplace", False)
        if in_place:
            env[node.args[0]] = result
        return result

    def _call(self, handler: Callable, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = inspect.signature(handler).bind(self.table, *args, **kwargs)
        except TypeError as error:
            raise Unreadable(f"is called in a way that is not known: {error}") from error
        return handler(*bound.args, **bound.kwargs)

    def _observe(self, node: torch.fx.Node, root: nn.Module) -> Value:
        width = self._input_width(node, root)
        if self.observation is None:
            self.observation = self.table.room(width)
        if self.observation.width != width:
            raise Unreadable(
                f"has {width} entries here and {self.observation.width} in the first module; "
                "both must read the same observations"
            )
        return self.observation

    def _input_width(self, node: torch.fx.Node, root: nn.Module) -> int:
        """Return how many entries an observation has, as told by the first layer that reads it."""
        ahead = [node]
        for current in ahead:
            for user in current.users:
                if user.op == "call_module":
                    layer = root.get_submodule(str(user.target))
                    for name in ("in_features", "num_features", "normalized_shape"):
                        if size := getattr(layer, name, None):
                            return size[-1] if isinstance(size, tuple) else size
                for other in user.all_input_nodes:
                    if other.op == "get_attr":
                        shape = self._stored(root, str(other.target)).tensor.shape
                        if shape and shape[-1] > 1:
                            return shape[-1]
                if user.target not in CHANGES_WIDTH:
                    ahead.append(user)
        raise Unreadable(
            "is read by no layer that tells its size; begin with Linear, LayerNorm or BatchNorm1d"
        )

    def _output(self, output: Any) -> Any:
        if isinstance(output, dict):
            return {name: self.table.value(part) for name, part in output.items()}
        if isinstance(output, tuple | list):
            return tuple(self.table.value(part) for part in output)
        return self.table.value(output)

    def _visit(self, module: nn.Module) -> None:
        if module._forward_hooks or module._forward_pre_hooks:
            problem = f"{type(module).__name__} has forward hooks, which would not run"
            refuse(self.where, [problem], note="Remove them before the module acts.")
        if any(_global_hooks()):
            problem = "there are global forward hooks, on all modules, which would not run"
            refuse(self.where, [problem], note="Remove them before the module acts.")
        self.visited[id(module)] = module

    def _walk(self, root: nn.Module, path: Sequence[str]) -> nn.Module:
        module = root
        for name in path:
            module = module.get_submodule(name)
            self._visit(module)
        return module

    def _stored(self, root: nn.Module, target: str) -> Stored:
        *path, name = target.split(".")
        module = self._walk(root, path)
        for holder in (module._parameters, module._buffers, vars(module)):
            if name in holder:
                return Stored(holder, name)
        raise Unreadable("was not found")


class _Tracer(torch.fx.Tracer):
    """Enters every module but PyTorch's own layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m).__module__.startswith("torch.nn") and not isinstance(m, _CONTAINERS)


def _trace(where: str, module: nn.Module, root: nn.Module) -> torch.fx.Graph:
    try:
        return _Tracer().trace(root)
    except Exception as error:  # whatever the user's forward raises for a stand-in
        name, reason = type(module).__name__, str(error).strip().split("\n")[0].rstrip(".")
        raise TypeError(
            f"{where}: {name}.forward cannot be followed without values: {reason} "
            f"({type(error).__name__}). It must do the same operations for every observation and "
            f"return tensors, not a torch.distributions object. "
            f"{_INSTEAD} step."
        ) from error


def _name(node: torch.fx.Node) -> str:
    """Return what a message calls this operation."""
    target = str(node.target).removeprefix("0.")
    if node.op == "call_module":
        return "the module" if node.target == "0" else f'layer "{target}"'
    if node.op == "placeholder":
        return "the observation"
    if node.op == "output":
        return "the output"
    name = target if isinstance(node.target, str) else getattr(node.target, "__name__", target)
    return f'"{name}" in forward'
