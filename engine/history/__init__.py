"""Past days of accounts: the block of a day, stored snapshots, values by day, performance."""
