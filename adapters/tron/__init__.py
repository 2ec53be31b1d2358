"""Tron, and every chain with the HTTP API of its nodes."""
