"""A complete beacon node with its validators, by the clock: Lodestar 1.5.1, on Capella, with slots of two seconds."""
