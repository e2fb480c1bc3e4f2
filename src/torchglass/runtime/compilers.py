"""C compilers at work for one file: commands in, exit codes out; and all of them stopped at once.

    compilers = Compilers()
    code, said = compilers.run(["gcc", ...])        # in any thread
    compilers.stop()                                # nobody waits for it any more
    compilers.temporary = folder                    # where they leave files that one who is stopped does not delete

They are in process groups of their own: Ctrl-C on the terminal is the program's to handle, and must not look like a
compiler that failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from ..process import interrupts


def _file() -> IO[bytes]:
    """A file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("torchglass-cc", os.MFD_CLOEXEC), "w+b")
    return tempfile.TemporaryFile()


class Compilers:
    """The processes of one file's compilation."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []
        self.stopped = False
        self.temporary: str | None = None

    def start(self, command: Sequence[str], **pipes: Any) -> subprocess.Popen[str]:
        """A process that reads and writes text."""
        if self.stopped:
            raise InterruptedError("the compilers were stopped")
        # found here: where subprocess looks for it, it changes the filters of warnings, and all are shown again
        found = shutil.which(command[0])
        env = None if self.temporary is None else os.environ | {"TMPDIR": self.temporary}
        process = subprocess.Popen(  # what compilers say need not be UTF-8
            command, text=True, errors="replace", process_group=0, executable=found, env=env, **pipes
        )
        self._running.append(process)
        if self.stopped:  # by another thread, which did not find it
            self.stop()
        return process

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """The exit code of a command, and what it says."""
        with _file() as said:  # no pipe: it ends with the last process that has it, which a compiler may leave behind
            process = self.start(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
            try:
                code = interrupts.waiting(process.wait)
            except BaseException:
                self.stop()
                raise
            said.seek(0)
            return code, said.read().decode(errors="replace")

    def stop(self) -> None:
        """End those that still run, and start none any more."""
        self.stopped = True
        for process in list(self._running):
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
