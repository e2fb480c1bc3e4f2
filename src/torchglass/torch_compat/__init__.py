"""The only package that touches PyTorch's private modules.

Each private name says what breaks without it and which versions were tried, so that a new PyTorch release is one
package to look at. All names can be had from here; each stands in the file of what it is for.
"""

from .callables import *
from .compiling import *
from .cuda_graphs import *
from .data_parallel import *
from .fake_tensors import *
from .modes import *
from .onednn import *
from .running import *
from .shape_specs import *
from .symbolic_shapes import *
from .tracing import *
