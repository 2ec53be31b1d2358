"""What concerns some accounts alone: the logs that name them, and the places of the chain where they did something."""
