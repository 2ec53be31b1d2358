"""Decoders of Solana's protocols: every file here with a `FAMILY` is loaded."""
