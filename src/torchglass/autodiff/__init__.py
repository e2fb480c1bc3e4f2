"""Ahead-of-time autodiff: a captured torch-level graph in, forward and backward ATen graphs out.

Order of reading: ``joint`` (runs the captured graph below functionalization, ``recorder`` writes what it sees,
``pure_kernels`` helps), ``aliases`` (what each output is), ``cleanup``, ``names``, ``cut`` (what to save, by the prices
of ``recompute``), ``graphs`` (back to FX), all in the order of ``partition``; and ``link``, the ``autograd.Function`` at
run time.
"""

from .joint import AutodiffError
from .link import link
from .partition import trace_inference, trace_training

__all__ = ["AutodiffError", "link", "trace_inference", "trace_training"]
