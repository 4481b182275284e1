"""Slow, plainly right twins of the fast implementations; used by tests and benchmarks only."""
