"""What an asset was worth at a moment: one file a source, and a chain of sources that says which one answered."""
