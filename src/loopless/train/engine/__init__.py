"""What every trainer shares."""
