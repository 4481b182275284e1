"""Tasks: each draws batches of tensors from an explicit random generator."""
