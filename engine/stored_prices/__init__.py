"""Prices that are read once: the store of prices, and the prices of past blocks."""
