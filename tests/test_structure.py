"""The code keeps its own rules: no Python loop over data, imports that point down."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "loopless"
COMPILED = {"njit", "register_jitable", "overload", "jit"}
LAYERS = [
    {"process", "refusals"},
    {"files"},
    {"compiled"},
    {"arrays"},
    {"reference"},
    {"kernels"},
    {"replay"},
    {"text"},
    {"nets"},
    {"envs"},
    {"runs"},
    {"train"},
    {"bench"},
    {"verify"},
    {"report"},
    {"demo"},
    {"cli"},
]


def python_loops(tree: ast.Module) -> list[tuple[int, str]]:
    """Every loop and comprehension outside compiled functions: its line and what it runs over."""
    found = []

    def visit(node, compiled):
        if isinstance(node, ast.FunctionDef):
            marks = {
                n.id for d in node.decorator_list for n in ast.walk(d) if isinstance(n, ast.Name)
            }
            marks |= {
                n.attr for d in node.decorator_list for n in ast.walk(d)
                if isinstance(n, ast.Attribute)
            }  # fmt: skip
            compiled = compiled or bool(marks & COMPILED)
        if not compiled:
            if isinstance(node, ast.While):
                found.append((node.lineno, "while"))
            if isinstance(node, ast.For):
                found.append((node.lineno, ast.unparse(node.iter)))
            if isinstance(node, ast.comprehension):
                found.append((node.iter.lineno, ast.unparse(node.iter)))
        for child in ast.iter_child_nodes(node):
            visit(child, compiled)

    visit(tree, False)
    return found


# What Python loops run over in kernels/ and replay/: names, fields, arguments, epochs; never rows.
# A new loop is entered here by hand, by someone who has looked at what it runs over.
# Dictionaries' views and written-out tuples hold arguments and fields, and pass without an entry.
NOT_DATA = {
    "floats",
    "range(epochs)",
    "pairwise(bounds)",
    "batches",
    "field.shape",
    "outer",
    "problems",
    "names",
    "given",
    "unknown",
    "self._given",
    "self._added",
    "fields",
    "own",
    "[name for name in own if name in state]",
    "small",
    "parsed",
    "self._rows.large",
    "store.fields",
    "shapes",
    "read",
    "ahead",
    "zip(arrays, shapes, strict=True)",
    "zip(names, shapes, strict=True)",
    "self.arrays",  # of a journal: one for each field, in blocks of a megabyte
    "runs",
    "product(runs, enumerate(self.arrays))",
    "iter(partial(_next_record, file, flush), None)",
    "_OPEN",
}


def is_small(text: str) -> bool:
    """Whether a loop's iterable is known not to be as long as the data."""
    return text in NOT_DATA or text.startswith("((") or text.endswith((".items()", ".values()"))


FILES = sorted([*(SOURCE / "kernels").rglob("*.py"), *(SOURCE / "replay").rglob("*.py")])


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_python_loop_over_data(file):
    loops = python_loops(ast.parse(file.read_text()))
    assert not [(line, text) for line, text in loops if not is_small(text)]


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


def layer_of(name: str) -> int | None:
    return next((i for i, names in enumerate(LAYERS) if name in names), None)


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE))
)
def test_imports_point_down_the_map(file):
    mine = layer_of(file.relative_to(SOURCE).parts[0].removesuffix(".py"))
    if mine is None:
        return
    for node in ast.walk(ast.parse(file.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module] + [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            modules = [a.name for a in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "loopless" and len(parts) > 1:
                other = layer_of(parts[1])
                assert other is None or other <= mine, f"line {node.lineno} imports {module}"


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE))
)
def test_every_file_says_why_it_exists(file):
    assert ast.get_docstring(ast.parse(file.read_text()))
