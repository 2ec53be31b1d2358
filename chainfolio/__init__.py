"""The shared words: blocks, assets, amounts, tables, contracts, errors, settings, seams. Imports nothing of ours."""
