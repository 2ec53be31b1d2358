"""Kinds of markets on chain, one file each: where pools of two tokens may lie, and what one says of its price."""
