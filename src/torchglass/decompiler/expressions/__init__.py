"""Symbolic execution of basic blocks: what instructions mean as expressions and as simple statements."""
