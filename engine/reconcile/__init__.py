"""Comparison of balances on chain with the movements in the index."""
