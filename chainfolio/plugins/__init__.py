"""The modules for plug-ins: `chain`, `dataset`, `price_source`, `protocol` (EVM), `solana_protocol`.

Everything else of Chainfolio is private, and may change with any release.
"""
