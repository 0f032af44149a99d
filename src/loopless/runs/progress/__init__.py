"""How a run is getting on, shown on a terminal or as plain lines."""
