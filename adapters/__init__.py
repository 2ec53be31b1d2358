"""Chains answer: one folder a chain family, the only code that speaks to nodes."""
