"""Answers: portfolios, positions, transactions, approvals and history of accounts, at one block a chain."""
