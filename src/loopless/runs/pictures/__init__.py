"""Pictures of runs, drawn by a separate process while training goes on."""
