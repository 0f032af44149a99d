"""The names of the grids that come with the library, and the ids of their environments.

Asking which there are loads nothing: the registry of compiled environments reads this file before
anyone has decided on a mode. Imports nothing. Tests: `tests/envs/test_grid_generators.py`.
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

# By id: the fields of `grid_task.GridTask` that it stands for. "loopless/Grid-v0" is told its own.
ENV_FIELDS = {f"loopless/{name}-v0": {"layout": name} for name in GRIDS} | {
    "loopless/GridMaze-19-v0": {"layout": "GridMaze-19-seed0"},
    "loopless/Grid-v0": {},
}
COMPILED = {env_id: ("grid", "Grid", fields) for env_id, fields in ENV_FIELDS.items()}
