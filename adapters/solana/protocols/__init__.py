"""Decoders of Solana's protocols: one file a family, each with a `FAMILY`. A file that is put here is found."""
