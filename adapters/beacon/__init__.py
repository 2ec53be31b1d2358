"""Beacon chains: validators, rewards, withdrawals and deposits, by the standard Beacon API."""
