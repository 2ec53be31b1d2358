"""Reading Starknet: its blocks, accounts, balances and positions."""
