"""A run's config: from a TOML file and flags to a checked dataclass."""
