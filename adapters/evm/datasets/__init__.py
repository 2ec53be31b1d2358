"""One file a dataset: what it asks a chain for and how the answer becomes rows."""
