"""A Tron full node of one's own: keeps state as java-tron does, and answers as it does."""
