"""Supervised memory training and DAgger memory training (arXiv:2606.06479)."""
