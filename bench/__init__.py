"""Benchmarks: each measures one requirement of the project, compared with peers if there are any."""
