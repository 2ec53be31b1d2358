"""The portfolio computes: holdings, worth, history and lots, from tables and exact integers, without any I/O."""
