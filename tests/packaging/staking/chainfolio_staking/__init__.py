"""Third-party protocols."""
