"""Portfolios of accounts on one chain at one block: candidates, reading, judgement, snapshot."""
