"""What every trainer shares: runs, agents, episodes, health, optimizer, schedules, options."""
