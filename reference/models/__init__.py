"""Models: one file each, built from keyword arguments with JSON-able values."""
