"""Profit and loss: acquisitions and disposals matched lot by lot, without I/O, in exact integers."""
