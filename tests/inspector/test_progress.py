"""The line on the terminal while something compiles."""

import io
import time

import pytest

from torchglass.inspector import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    monkeypatch.delenv(progress.QUIET, raising=False)


def compile_something(stream, monkeypatch) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    with progress.compiling("Net"):
        progress.reached("codegen", kernels=14)
        progress.reached("compile C")
        end = time.monotonic() + 10
        while isinstance(stream, Terminal) and "14 kernels" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    return stream.getvalue()


def test_it_says_name_stage_seconds_and_kernels_and_goes(quick, monkeypatch):
    said = compile_something(Terminal(), monkeypatch)
    assert "\rtorchglass: Net: compile C, 0." in said and ", 14 kernels" in said
    assert said.endswith(" \r")


def test_it_is_silent_where_nobody_looks(quick, monkeypatch):
    assert compile_something(io.StringIO(), monkeypatch) == ""


def test_it_is_silent_when_asked_to_be(quick, monkeypatch):
    monkeypatch.setenv("TORCHGLASS_QUIET", "1")
    monkeypatch.setattr(progress, "AFTER", 1000)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.compiling("Net"):
        time.sleep(0.05)
    assert stream.getvalue() == ""
    assert not progress.shown(stream)


def test_a_short_compile_says_nothing(monkeypatch):
    monkeypatch.delenv(progress.QUIET, raising=False)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress.compiling("Net"):
        pass
    assert stream.getvalue() == ""
