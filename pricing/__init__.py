"""Prices of assets at a block: one file per source, and the chain that queries the sources in order."""
