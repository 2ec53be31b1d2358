"""Indexing: back-fill, following the head, derived tables, and the parts built from settings."""
