"""The code keeps its own rules: the map in the README, imports, names, no Python loop over data."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import loopless
from loopless.train.registry import TRAINERS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "loopless"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file.relative_to(SOURCE): ast.parse(file.read_text()) for file in FILES}


# --- the map ---------------------------------------------------------------------------------


def layers(readme: str) -> list[set[str]]:
    """Return the layers on the README's map, the lowest first: names directly under loopless."""
    (block,) = re.findall(r"```text\nsrc/loopless/\n(.*?)\ntests/", readme, re.DOTALL)
    lines = [
        re.match(r"  ((?:\w+(?:/|\.py) +)+)(?=\w|`)", line)[1].split() for line in block.split("\n")
    ]
    return [{re.sub(r"/|\.py", "", name) for name in line} for line in reversed(lines)]


LAYERS = layers((ROOT / "README.md").read_text())
FLOOR = {name: floor for floor, names in enumerate(LAYERS) for name in names}


def test_the_map_shows_what_there_is():
    names = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("__")}
    assert set(FLOOR) == names - {"py"}


def test_the_map_is_read_from_top_to_bottom():
    page = "```text\nsrc/loopless/\n  a.py  b.py  upper\n  c/   lower\ntests/\n```"
    assert layers(page) == [{"c"}, {"a", "b"}]


def imports(tree: ast.Module) -> list[tuple[int, str]]:
    """List the modules of ours that a file imports, with the line."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "loopless":
            lines += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loopless."):
            lines.append((node.lineno, node.module.split(".")[1]))
        elif isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
            lines += [(node.lineno, m[1]) for m in modules if m[0] == "loopless" and len(m) > 1]
    return lines


def upward(trees: dict) -> list[str]:
    """List the imports that point up the map."""
    return [
        f"{file}:{line} imports {name}"
        for file, tree in trees.items()
        if file.parts[0] != "__init__.py"
        for line, name in imports(tree)
        if FLOOR.get(name, -1) > FLOOR[file.parts[0].removesuffix(".py")]
    ]


def test_imports_point_down_the_map():
    assert upward(TREES) == []


@pytest.mark.parametrize(
    "code", ["import loopless.cli", "from loopless.train import dqn", "from loopless import verify"]
)
def test_an_import_that_points_up_is_noticed(code):
    assert upward({Path("kernels/returns.py"): ast.parse(code)})


# --- files -----------------------------------------------------------------------------------


def test_every_file_says_why_it_exists():
    assert [file for file, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_no_file_is_longer_than_a_reader_can_hold():
    assert [file for file in FILES if len(file.read_text().splitlines()) > 400] == []


def test_algorithms_can_be_read_from_top_to_bottom():
    long = {
        file: len(file.read_text().splitlines()) for file in SOURCE.glob("train/*/algorithm.py")
    }
    assert {file.parent.name for file in long} == set(TRAINERS)
    assert {file: lines for file, lines in long.items() if lines > 250} == {}


def test_a_trainer_has_few_files():
    folders = {file.parent for file in SOURCE.glob("train/*/algorithm.py")}
    counts = {f.name: len([x for x in f.glob("*.py") if x.stem != "__init__"]) for f in folders}
    assert {name: count for name, count in counts.items() if count > 5} == {}


def modules() -> list:
    """Import every module of ours, but for the deliberately wrong functions of `verify`."""
    names = [module.name for module in pkgutil.walk_packages(loopless.__path__, "loopless.")]
    return [importlib.import_module(name) for name in names if ".wrong" not in name]


def test_modules_hide_no_public_name():
    """Importing `loopless.x` sets `x` on the package, which would hide a function of that name."""
    modules()
    for name in loopless.__all__:
        assert callable(getattr(loopless, name)), name


def grandparents(classes: set[type]) -> list[str]:
    """List the classes of ours that inherit from a class of ours that inherits from another."""
    ours = {
        cls: [c for c in cls.__bases__ if c.__module__.startswith("loopless")] for cls in classes
    }
    return sorted(
        f"{cls.__module__}.{cls.__qualname__} < {parent.__qualname__}"
        for cls, parents in ours.items()
        for parent in parents
        if any(c.__module__.startswith("loopless") for c in parent.__mro__[1:])
    )


def test_no_class_of_ours_has_a_grandparent_of_ours():
    members = [value for module in modules() for value in vars(module).values()]
    assert grandparents({x for x in members if isinstance(x, type)}) == []


def test_a_grandparent_is_noticed():
    first = type("First", (), {"__module__": "loopless.a"})
    second = type("Second", (first,), {"__module__": "loopless.a"})
    third = type("Third", (second,), {"__module__": "loopless.a"})
    assert grandparents({first, second}) == []
    assert grandparents({first, second, third}) == ["loopless.a.Third < Second"]


# --- loops -----------------------------------------------------------------------------------

COMPILED = {"njit", "register_jitable", "overload", "jit", "jitable"}


def python_loops(tree: ast.Module) -> list[tuple[int, str]]:
    """List every loop and comprehension outside compiled functions: line, and what it runs over."""
    loops = []

    def visit(node, compiled):
        if isinstance(node, ast.FunctionDef):
            nodes = [n for decorator in node.decorator_list for n in ast.walk(decorator)]
            marks = {n.id for n in nodes if isinstance(n, ast.Name)}
            marks |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
            compiled = compiled or bool(marks & COMPILED)
        if not compiled:
            if isinstance(node, ast.While):
                loops.append((node.lineno, "while"))
            if isinstance(node, ast.For):
                loops.append((node.lineno, ast.unparse(node.iter)))
            if isinstance(node, ast.comprehension):
                loops.append((node.iter.lineno, ast.unparse(node.iter)))
        for child in ast.iter_child_nodes(node):
            visit(child, compiled)

    visit(tree, False)
    return loops


# What Python loops run over in kernels/ and replay/: names, fields, arguments, epochs; never steps.
# A new loop is entered here by hand, by someone who has looked at what it runs over.
# Dictionaries' views and written-out tuples hold arguments and fields, and pass without an entry.
NOT_DATA = {
    "floats",
    "range(epochs)",
    "pairwise(bounds)",
    "batches",
    "field.shape",
    "outer",
    "names",
    "self._declared",
    "self._added",
    "fields",
    "small",
    "parsed",
    "ahead",
    "self.arrays",  # of a journal: one for each field, in blocks of a megabyte
    "range(self.stack - 1)",  # the frames of one picture
    "runs",
    "product(runs, enumerate(self.arrays))",
    "iter(partial(_next_record, file, flush), None)",
    "_OPEN",
    "list(_owners)",  # buffers
    "self._arrays",  # of a packer: one for each field that is no single number
}


def is_small(text: str) -> bool:
    """Return whether a loop's iterable is known not to be as long as the data."""
    return text in NOT_DATA or text.startswith("((") or text.endswith((".items()", ".values()"))


def test_no_python_loop_over_data():
    loops = [
        (str(file), line, text)
        for file, tree in TREES.items()
        if file.parts[0] in {"kernels", "replay"}
        for line, text in python_loops(tree)
        if not is_small(text)
    ]
    assert loops == []


def test_every_loop_that_is_allowed_is_there():
    trees = [tree for file, tree in TREES.items() if file.parts[0] in {"kernels", "replay"}]
    loops = {text for tree in trees for _, text in python_loops(tree)}
    assert loops >= NOT_DATA


@pytest.mark.parametrize(
    "code",
    [
        "for t in range(len(x)): pass",
        "for row in rewards: pass",
        "[x[t] for t in range(T)]",
        "while t: t -= 1",
    ],
)
def test_the_loop_finder_finds_loops(code):
    loops = python_loops(ast.parse(f"def f(x):\n    {code}"))
    assert loops
    assert not any(is_small(text) for _, text in loops)


def test_the_loop_finder_passes_compiled_functions():
    assert not python_loops(ast.parse("@njit\ndef f(x):\n    for t in range(9): pass"))
