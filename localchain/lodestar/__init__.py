"""A complete beacon node with validators in real time: Lodestar 1.5.1, Capella, slots of two seconds."""
