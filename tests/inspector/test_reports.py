"""When README.md and full_code.py are written."""

import os

import pytest

from torchglass.inspector import reports
from torchglass.records.compilation import EntryRecord, FunctionRecord


@pytest.fixture
def written():
    reports.flush()
    return {}


def test_at_once(written):
    reports.changed(FunctionRecord("f"), written.__setitem__, at_once=True)
    assert list(written) == ["README.md", "full_code.py"]


def test_later_and_once_with_the_latest_record(written):
    record = FunctionRecord("f")
    for index in range(3):
        record.entries.append(EntryRecord(index))
        reports.changed(record, written.__setitem__, at_once=False)
    assert not written
    reports.flush(FunctionRecord("another"))
    assert not written
    reports.flush(record)
    assert "## entry 2" in written["README.md"]
    written.clear()
    reports.flush()
    assert not written


def test_a_forked_child_writes_nothing_of_its_parents(written, monkeypatch):
    reports.changed(FunctionRecord("f"), written.__setitem__, at_once=False)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    reports.flush()
    assert not written


def test_a_failing_report_harms_nothing(written, caplog):
    def write(name, text):
        raise OSError("disk full")

    reports.changed(FunctionRecord("f"), write, at_once=True)
    assert "README.md of f could not be written" in caplog.text
