"""For developers of protocol decoders: recordings of real accounts, and scaffolding of new packages."""
