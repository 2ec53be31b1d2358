"""The command-line door: parse, call, render."""
