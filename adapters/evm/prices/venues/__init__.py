"""Venues: kinds of pools on chain, one file each.

A venue finds the pools of two tokens and reads their prices.
"""
