"""What every chain family shares: the client that asks nodes, and the driver of questions."""
