"""Benchmarks: each measures one requirement of the project, compared with peers if there are any."""

from chainfolio.cli.process import use_one_heap

use_one_heap()
