"""Protocols of somebody else."""
