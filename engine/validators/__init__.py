"""Validators of the beacon chain: records, rewards, and the stake of accounts."""
