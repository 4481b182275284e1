"""Claims of Sparse Attentive Backtracking (arXiv:1809.03702v1)."""
