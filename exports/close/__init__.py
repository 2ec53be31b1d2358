"""Books of a closed period in a signed folder, and the check of such a folder."""
