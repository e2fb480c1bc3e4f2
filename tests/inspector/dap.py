"""A client of debuggers that speak the Debug Adapter Protocol (debugpy): breakpoints in, what each stop showed out.

seen, output = stops(program, arguments, {path: [(line, "x.shape")]})    # seen[0] == (path, line, "torch.Size([3])")
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Connection:
    """Messages over a socket: each a header with its length and JSON."""

    def __init__(self, port: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.file = self.socket.makefile("rb")
        self.sent = 0
        self.events: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        self.sent += 1
        body = json.dumps({"seq": self.sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return self.sent

    def read(self) -> dict[str, Any]:
        length = 0
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            return {"type": "event", "event": "terminated"}
        message: dict[str, Any] = json.loads(self.file.read(length))
        return message

    def answer(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its response; events that come before are kept."""
        number = self.send(command, **arguments)
        while True:
            message = self.read()
            if message["type"] == "response" and message["request_seq"] == number:
                assert message["success"], message
                return dict(message.get("body") or {})
            if message["type"] == "event":
                self.events.append(message)
                assert message["event"] != "terminated", f"ended before {command} was answered"

    def event(self, *names: str) -> dict[str, Any]:
        """The next event of one of these names."""
        while True:
            for n, message in enumerate(self.events):
                if message["event"] in names:
                    return self.events.pop(n)
            message = self.read()
            if message["type"] == "event":
                self.events.append(message)


def stops(
    program: Path, arguments: list[str], breakpoints: dict[Path, list[tuple[int, str]]], seconds: float = 240
) -> tuple[list[tuple[Path, int, str]], str]:
    """Run ``program`` under debugpy; for every stop the place and the value of its expression, and what it printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "debugpy", "--listen", f"127.0.0.1:{port}", "--wait-for-client"]
    process = subprocess.Popen([*command, str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        seen = _session(Connection(port, seconds), breakpoints)
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, errors.decode()
    return seen, output.decode()


def _session(dap: Connection, breakpoints: dict[Path, list[tuple[int, str]]]) -> list[tuple[Path, int, str]]:
    dap.answer("initialize", clientID="test", adapterID="python", pathFormat="path", linesStartAt1=True)
    dap.send("attach", justMyCode=False)
    dap.event("initialized")
    wanted = {}
    for path, rows in breakpoints.items():
        lines = [{"line": line} for line, _ in rows]
        set_now = dap.answer("setBreakpoints", source={"path": str(path)}, breakpoints=lines)
        assert all(b["verified"] for b in set_now["breakpoints"]), set_now
        wanted |= {(path, line): expression for line, expression in rows}
    dap.answer("configurationDone")
    seen = []
    while (event := dap.event("stopped", "terminated"))["event"] == "stopped":
        thread = event["body"]["threadId"]
        frame = dap.answer("stackTrace", threadId=thread, levels=1)["stackFrames"][0]
        place = Path(frame["source"]["path"]), frame["line"]
        expression = wanted.get(place, "None")
        value = dap.answer("evaluate", expression=expression, frameId=frame["id"], context="watch")["result"]
        seen.append((*place, value))
        dap.answer("continue", threadId=thread)
    return seen
