"""Protocol decoders: one file a family, each with a `FAMILY`. A file that is put here is found; no list names it."""
