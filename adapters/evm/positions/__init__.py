"""Positions in protocols of EVM chains: rules, matching of accounts, and running of decoders."""
