"""History of accounts: logs that name them, transactions, and internal transfers."""
