"""Sweeps over models and operators; what they say of compiles is said of compiles, not of entries that were kept."""

import os

os.environ.setdefault("TORCHGLASS_CACHE", "off")
