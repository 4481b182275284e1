"""How credit is assigned: what one training step differentiates, and through which paths."""
