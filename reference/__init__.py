"""The science: tasks, models, algorithms and measures in plain PyTorch, with a slow twin each."""
