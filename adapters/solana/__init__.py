"""Reading Solana: its blocks, accounts, balances and positions."""
