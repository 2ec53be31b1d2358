"""The HTTP interface: parse, call, render."""
