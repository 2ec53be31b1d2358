"""A Starknet node of one's own."""
