"""A real EVM chain on this machine: a node, published DeFi contracts, wallets that trade and tokens that misbehave."""
