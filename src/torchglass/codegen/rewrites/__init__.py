"""Rewrites of a kernel's statements: each a function from a loop to what is put in its place, or None.

None says that the rewrite does not apply or, by its cost predicate, does not pay. ``c_kernel`` says which are tried
where.
"""
