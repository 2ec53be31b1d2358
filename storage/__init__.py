"""The store keeps: the lake of finalised data, the tail of unfinalised blocks, the state of accounts and credits."""
