"""Symbolic values, one file per kind."""
