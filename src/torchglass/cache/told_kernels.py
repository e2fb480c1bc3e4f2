"""What a kept entry tells people of its kernels: read when somebody asks, never by a hit.

rows_of(kernels)                        what forward_told.json holds
kernels_of(kept, "forward")             the records again; none where the file is gone or damaged
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .folder import Damaged, Kept
from .values import decoded, encoded

if TYPE_CHECKING:
    from ..records.kernels import Kernel

FILE = "{}_told.json"
FIELDS = ("name", "language", "source", "arguments", "loops", "ops", "calls", "bytes", "floor")
log = logging.getLogger("torchglass.cache")


def rows_of(kernels: Iterable[Kernel]) -> list[Any]:
    """Kernels as JSON, with what was measured of them."""
    return [
        {
            **{name: getattr(kernel, name) for name in FIELDS},
            "origins": [encoded(origin) for origin in kernel.origins],
            "tried": [[str(one.choice), one.microseconds] for one in kernel.tried],
        }
        for kernel in kernels
    ]


def kernels_of(kept: Kept, side: str) -> tuple[Kernel, ...]:
    """The kernels of a side."""
    from ..records.kernels import Kernel, Measurement  # which a hit does without

    try:
        rows = kept.json(f"graph_0/{FILE.format(side)}")
    except Damaged as error:
        log.info("%s", error)
        return ()
    return tuple(_kernel(row, Kernel, Measurement) for row in rows)


def _kernel(row: dict[str, Any], kernel: Any, measurement: Any) -> Kernel:
    fields = {name: tuple(row[name]) if isinstance(row[name], list) else row[name] for name in FIELDS}
    tried = tuple(measurement(choice, microseconds) for choice, microseconds in row["tried"])
    made: Kernel = kernel(**fields, origins=tuple(map(decoded, row["origins"])), tried=tried)
    return made
