"""Portfolio calculations without I/O: holdings, values, history and lots, in exact integers."""
