"""The command-line interface: parse, call, render."""
