"""Checks of ``torch.distributions`` that branch on what an earlier check found: both are computed, one selects."""

# mypy: ignore-errors

from __future__ import annotations

import torch
from torch.distributions import constraints

from .registry import polyfill


@polyfill(type(constraints.positive_definite).check)
def is_positive_definite(constraint, value):
    """The factorization is asked last, and its answer read where the matrices are symmetric."""
    symmetric = type(constraints.symmetric).check(constraint, value)
    if value.shape[-2] != value.shape[-1]:
        return symmetric
    definite = torch.linalg.cholesky_ex(value).info.eq(0)
    return torch.where(symmetric.all(), definite, symmetric)
