"""Ahead-of-time autodiff: a captured torch-level graph in, forward and backward ATen graphs out.

Order of reading: ``joint`` runs the captured graph below functionalization, ``recorder`` writes down what it sees and
``pure_kernels`` helps; ``aliases`` says what each output is; ``cleanup`` and ``names``; ``cut`` chooses what to save by
the prices of ``recompute``; ``graphs`` goes back to FX; all in the order of ``partition``. ``link`` is the run time.
"""

from .graphs import differentiates, enables_grad
from .inference_mode import outside_inference_mode
from .joint import AutodiffError
from .link import link
from .partition import trace_inference, trace_training

__all__ = [
    "AutodiffError",
    "differentiates",
    "enables_grad",
    "link",
    "outside_inference_mode",
    "trace_inference",
    "trace_training",
]
