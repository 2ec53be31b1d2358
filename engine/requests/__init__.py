"""Requests that commands and sessions share: portfolios, days, transactions and reconciliations."""
