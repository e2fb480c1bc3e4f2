"""When the files for reading are written."""

import os
import time

import pytest
import torch

import torchglass as tg
from torchglass.inspector import reports
from torchglass.records.compilation import EntryRecord, FunctionRecord


@pytest.fixture
def written():
    reports.flush()
    return {}


def test_soon_where_somebody_looks(written, monkeypatch):
    monkeypatch.setattr(reports, "QUIET", 0.01)
    record = FunctionRecord("f")
    reports.changed(record, written.__setitem__, asked=True)
    end = time.monotonic() + 30
    while "flow.svg" not in written and time.monotonic() < end:
        time.sleep(0.01)
    assert list(written) == ["README.md", "full_code.py", "report.html", "flow.svg"]


def test_at_once_when_flushed(written):
    reports.changed(FunctionRecord("f"), written.__setitem__, asked=True)
    reports.flush()
    assert "report.html" in written


def test_later_and_once_with_the_latest_record(written):
    record = FunctionRecord("f")
    for index in range(3):
        record.entries.append(EntryRecord(index))
        reports.changed(record, written.__setitem__, asked=False)
    assert not written
    reports.flush(FunctionRecord("another"))
    assert not written
    reports.flush(record)
    assert "## entry 2" in written["README.md"]
    assert list(written) == ["README.md", "full_code.py"]
    written.clear()
    reports.flush()
    assert not written


def test_a_forked_child_writes_nothing_of_its_parents(written, monkeypatch):
    reports.changed(FunctionRecord("f"), written.__setitem__, asked=False)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    reports.flush()
    assert not written


@pytest.mark.complains("could not be written")
def test_a_failing_report_harms_nothing(written, caplog):
    def write(name, text):
        raise OSError("disk full")

    reports.changed(FunctionRecord("f"), write, asked=True)
    reports.flush()
    assert "README.md of `f` could not be written" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_waits_for_the_thread_that_writes(monkeypatch):
    import threading

    reports.flush()
    monkeypatch.setattr(reports, "QUIET", 0.01)
    begun, written = threading.Event(), []

    def write(name, text):
        begun.set()
        time.sleep(0.02)
        written.append(name)

    reports.changed(FunctionRecord("f"), write, asked=True)
    assert begun.wait(30)
    child = os.fork()
    if child == 0:
        reports.flush()  # does not wait for a thread that is not in this process
        os._exit(0 if "flow.svg" in written else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_backward_adds_to_the_files_that_tell_of_its_forward(forgotten, tmp_path):
    """After a reset they tell of what was compiled since."""

    def sine(x):
        return x.sin()

    with tg.prepare_debug(tmp_path):
        compiled = tg.compile(sine)
        loss = compiled(torch.ones(5, requires_grad=True)).sum()
        if forgotten:
            tg.reset()
            compiled(torch.ones(3))
        reports.flush()
        loss.backward()
    (readme,) = tmp_path.glob("*sine/README.md")
    told = readme.read_text()
    assert "forward `kernel_0`" in told and ("backward `kernel_0`" in told) != forgotten
