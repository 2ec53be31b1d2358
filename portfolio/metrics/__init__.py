"""Metrics of a portfolio over time: one file each; pure, exact where the figure is rational."""
