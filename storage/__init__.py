"""Storage: the lake of finalised data, the tail of unfinalised blocks, and the state of accounts."""
