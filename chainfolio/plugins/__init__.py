"""All that a plug-in may import: `chain`, `dataset`, `price_source`, `protocol` (of the EVM) and `solana_protocol`.

Everything else of Chainfolio is private, and may change with any release.
"""
