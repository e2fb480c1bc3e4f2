"""Canonical instructions in, fewer out: what the compiler added around user code and copied of it is taken away."""
