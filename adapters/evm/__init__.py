"""Everything that knows how an EVM chain is spoken to, and nothing else."""
