"""A Solana node with the real token, stake and vote programs, for the tests."""
