"""Gains of accounts, from their transactions and the prices of their blocks."""
