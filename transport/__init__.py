"""How endpoints are asked: bounded exchanges over HTTP, JSON-RPC, limits and retries, whom of several to believe."""
