"""Access to endpoints: HTTP with bounds, JSON-RPC, REST, rate limits, retries, quorum."""
