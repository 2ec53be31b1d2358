"""For developers of EVM protocol decoders: recordings of real accounts, and the first lines of a new decoder."""
