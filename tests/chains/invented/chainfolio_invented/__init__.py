"""An invented kind of chain: in memory, with skipped heights, without logs, approvals and proofs."""
