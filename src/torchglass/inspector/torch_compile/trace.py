"""torch's structured trace (what ``TORCH_TRACE`` writes and tlparse reads) as events in this process.

Each event has the frame it belongs to, a name, and a text: ``((0, 0), "aot_joint_graph", "class …")``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

#: events whose payload is worth a file or a line; artifacts go by their own names
EVENTS = frozenset(
    {"dynamo_output_graph", "aot_joint_graph", "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
     "inductor_output_code", "compilation_metrics", "bwd_compilation_metrics"}
)  # fmt: skip
ARTIFACTS = frozenset({"inductor_post_grad_graph", "dynamo_graph_break_reason", "recompile_reasons", "dynamo_error"})
Sink = Callable[[tuple[int, int], str, str, dict[str, Any]], None]


class TraceListener(logging.Handler):
    """Hands the events of torch's trace to ``sink(frame, name, text, details)`` while installed."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(logging.DEBUG)
        self.sink = sink
        self.before: tuple[int, bool] | None = None

    def install(self) -> None:
        log = logging.getLogger("torch.__trace")
        self.before = log.level, log.propagate
        log.addHandler(self)
        log.setLevel(logging.DEBUG)
        log.propagate = False

    def remove(self) -> None:
        log = logging.getLogger("torch.__trace")
        log.removeHandler(self)
        if self.before is not None:
            log.setLevel(self.before[0])
            log.propagate = self.before[1]

    def emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", None) or {}
        frame = metadata.get("frame_id"), metadata.get("frame_compile_id")
        if not all(isinstance(part, int) for part in frame):
            return
        payload = getattr(record, "payload", None)
        for name in EVENTS & metadata.keys():
            details = metadata[name] if isinstance(metadata[name], dict) else {}
            self._deliver(frame, name, payload, details)
        artifact = metadata.get("artifact")
        if isinstance(artifact, dict) and artifact.get("name") in ARTIFACTS:
            self._deliver(frame, artifact["name"], payload, artifact)

    def _deliver(self, frame: Any, name: str, payload: Any, details: dict[str, Any]) -> None:
        try:
            self.sink(frame, name, payload if isinstance(payload, str) else "", details)
        except Exception:  # a folder that cannot be written must not stop the user's program
            logging.getLogger("torchglass.inspector").warning("could not keep %s of %s", name, frame, exc_info=True)
