"""Measurements: ``python -m benchmarks.NAME --json FILE``. Each prints a table and says what it measured
on.
"""
