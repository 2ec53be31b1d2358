"""Transactions of accounts, as pages of one list over all chains."""
