"""Ahead-of-time autodiff: a captured torch-level graph in, forward and backward ATen graphs out.

Order of reading: ``joint`` runs the captured graph below functionalization, ``recorder`` writes down what it sees and
``pure_kernels`` helps; ``aliases`` says what each output is; ``cleanup`` and ``names``; ``min_cut`` chooses what to
save by the prices of ``recompute``; ``graphs`` goes back to FX; all in the order of ``partition``. What runs around
the compiled graphs is ``runtime.runtime_wrapper``. ``segments`` cuts a backward where others wait for gradients.
"""

from .graphs import differentiates, enables_grad
from .inference_mode import without_inference_mode
from .joint import AutodiffError
from .partition import trace_inference, trace_training
from .segments import cut

__all__ = [
    "AutodiffError",
    "cut",
    "differentiates",
    "enables_grad",
    "trace_inference",
    "trace_training",
    "without_inference_mode",
]
