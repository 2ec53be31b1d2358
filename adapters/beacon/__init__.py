"""Beacon chains: validators, their rewards, withdrawals and deposits, by the standard Beacon API of any client."""
