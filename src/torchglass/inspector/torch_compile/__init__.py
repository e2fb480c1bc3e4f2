"""What torch.compile made, as a folder to read: guards, transformed code, graphs, Inductor's code.

>>> with collect("debug"):          # doctest: +SKIP
...     torch.compile(f)(x)

leaves, for each function that torch.compile compiled while the context was open::

    debug/f/README.md
    debug/f/entry_0/guards.py  transformed.py  graph_0/captured.py joint.py forward.py backward.py …
    debug/f/resume_at_8/entry_0/…

Names depend on the program only, not on the run.  Everything comes from hooks that torch offers: the bytecode hook, the
structured trace that tlparse reads, and the guards of the cache entries.
"""

from .collect import Collection, collect

__all__ = ["Collection", "collect"]
