"""The suite `allo`: training steps and whole runs beside the original pipeline, written plainly."""
