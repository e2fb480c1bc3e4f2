"""What graphs call beside ATen's operators: control flow on sub-graphs, and NumPy, which is traced as it runs."""

from . import symbolic_algebra as symbolic_algebra
from . import symbolic_attention as symbolic_attention
from . import symbolic_creation as symbolic_creation
from . import symbolic_fourier as symbolic_fourier
from . import symbolic_images as symbolic_images
from . import symbolic_indexing as symbolic_indexing
from . import symbolic_views as symbolic_views
