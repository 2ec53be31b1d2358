"""Local chains for tests and the demo: nodes, published contracts, trading wallets, hostile tokens."""
