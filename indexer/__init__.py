"""Movement: schedules work, drives chains, snapshots accounts and wires the parts together from settings."""
