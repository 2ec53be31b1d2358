"""Prices from contracts: one file for each source, and `venues/` with one file for each kind of pools."""
