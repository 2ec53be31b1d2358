"""Benchmarks: each bar of the project as a command that measures it, beside the best peers where there are any."""
