"""Tools for developers of EVM protocol decoders: recordings of real accounts, and a decoder scaffold."""
