"""Delayed Attention Training (arXiv:2510.00258v1)."""
