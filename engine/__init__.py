"""Portfolios, positions, transactions, approvals and history of accounts, at one block per chain."""
