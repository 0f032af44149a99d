"""Pictures of runs, drawn by a process of their own."""
