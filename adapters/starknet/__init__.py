"""Solana, and every chain with its JSON-RPC."""
