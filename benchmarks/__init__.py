"""Measurements: ``python -m benchmarks.NAME --json FILE``. Each prints a table and says what it measured
on.

Entries of earlier processes are neither looked for nor kept, but by ``warm_start``: a first call is a compile.
"""

import os

os.environ.setdefault("TORCHGLASS_CACHE", "off")
