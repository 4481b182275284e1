"""Tests of the science."""
