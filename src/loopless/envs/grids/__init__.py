"""Grid worlds: how they are drawn, walked and solved, and the names of those that loopless has.

`layouts.py` says what a grid is, `world.py` makes tables of it, and everything else reads those
tables. This file imports nothing, so that asking which grids there are is free.
"""

GRIDS = (
    "GridRoom-1",
    "GridRoom-4",
    "GridRoom-16",
    "GridRoom-32",
    "GridRoom-64",
    "GridCorridor-12",
)
MAZES = "GridMaze-<side>-seed<seed>"

# The ids of environments, each with the fields of `world.GridTask` that it stands for.
ENV_FIELDS = {f"loopless/{name}-v0": {"layout": name} for name in GRIDS} | {
    "loopless/GridMaze-19-v0": {"layout": "GridMaze-19-seed0"},
    "loopless/Grid-v0": {},
}
