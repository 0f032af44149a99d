"""The suite `learning`: real training runs over several seeds, and how well they end."""
