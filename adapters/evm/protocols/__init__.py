"""Protocol decoders: one file a family, each with a `FAMILY`. No list names the files."""
