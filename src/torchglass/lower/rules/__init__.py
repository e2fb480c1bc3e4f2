"""Neutral rules, one file per family of operators: they fill ``lower.table`` when this package is imported."""

from . import (  # noqa: F401
    activations,
    channels,
    creation,
    gathering,
    indexing,
    losses,
    normalization,
    pointwise,
    pooling,
    reductions,
    resampling,
    scans,
    scattering,
    special,
    views,
)
