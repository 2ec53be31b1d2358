"""Prices and rates of past blocks and moments, with the reasons for each."""
