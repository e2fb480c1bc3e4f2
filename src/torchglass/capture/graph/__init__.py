"""The graph under construction."""
