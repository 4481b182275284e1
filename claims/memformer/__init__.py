"""Memformer and memory replay back-propagation (arXiv:2010.06891)."""
