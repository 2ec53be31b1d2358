"""A server of the Model Context Protocol: answers about wallets for language models."""
