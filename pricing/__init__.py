"""What an asset was worth at a moment: one file a source, and a ladder that says which source answered."""
