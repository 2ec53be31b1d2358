"""Datasets of EVM chains, one file each: what a dataset reads, and how answers become rows."""
