"""The HTTP door: parse, call, render."""
