"""``torch.utils.checkpoint``."""

from __future__ import annotations

import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from ..shared import LING
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing


@whole
def ckpt(x):
    return checkpoint(lambda a: LING(a).relu(), x, use_reentrant=False)


@whole
def ckpt_re(x):
    return checkpoint(lambda a: LING(a).relu(), LING(x), use_reentrant=True)


SEQ = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())


@whole
def ckpt_seq(x):
    return checkpoint_sequential(SEQ, 2, x, use_reentrant=False)


@whole
def ckpt_kw(x):
    return cp.checkpoint(SEQ, x, use_reentrant=False, preserve_rng_state=False)


@whole
def ckpt_dropout(x):
    return checkpoint(lambda a: F.dropout(LING(a)), x, use_reentrant=False)
