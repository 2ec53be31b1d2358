"""Positions in protocols of EVM chains: rules and events of decoders, and the machinery that matches and reads them."""
