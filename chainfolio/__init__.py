"""The shared words: blocks, assets, amounts, tables, contracts, errors, settings, seams. Imports nothing of ours."""

__version__ = "1.0.0"  # of the package, the command and the OpenAPI document
