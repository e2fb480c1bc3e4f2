"""Wrong arguments of the public functions are refused at the call, by their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import torchglass as tg

x = torch.ones(3)


def double(a):
    return a * 2


def a_file():
    return Path(__file__)


def a_folder_of_other_things():
    return Path(__file__).parent


REFUSED = {
    "mark_dynamic of a number": (lambda: tg.mark_dynamic(3, 0), TypeError, "t must be a tensor, not 3"),
    "maybe_mark_dynamic of a number": (lambda: tg.maybe_mark_dynamic(3, 0), TypeError, "t must be a tensor"),
    "mark_unbacked of a number": (lambda: tg.mark_unbacked(3, 7), TypeError, "t must be a tensor"),
    "mark_static of a number": (lambda: tg.mark_static(3), TypeError, "t must be a tensor or a class"),
    "mark_static_address of a number": (lambda: tg.mark_static_address(3), TypeError, "t must be a tensor"),
    "no such dimension": (lambda: tg.mark_dynamic(x, 9), IndexError, "index must be a dimension of t, which has 1"),
    "one of several": (lambda: tg.mark_static(x, [0, 1]), IndexError, "index must be a dimension"),
    "an index of text": (lambda: tg.mark_dynamic(x, ["a"]), TypeError, "index must be a number"),
    "empty bounds": (lambda: tg.mark_dynamic(x, 0, min=5, max=2), ValueError, "min must not be above max: 5 > 2"),
    "empty bounds, unbacked": (lambda: tg.mark_unbacked(x, 0, min=5, max=2), ValueError, "min must not be above max"),
    "constant result": (lambda: tg.assume_constant_result(3), TypeError, "assume_constant_result: `function` is 3"),
    "region": (lambda: tg.nested_compile_region(3), TypeError, "nested_compile_region: `function` is 3"),
    "region, decorated": (lambda: tg.nested_compile_region()(3), TypeError, "nested_compile_region: `function` is 3"),
    "disable": (lambda: tg.compile(double, disable="yes"), TypeError, "disable must be True or False, not 'yes'"),
    "reset of a number": (lambda: tg.reset(3), TypeError, "directory must be a path"),
    "reset of a file": (lambda: tg.reset(a_file()), ValueError, "directory must be a folder of artifacts"),
    "reset elsewhere": (lambda: tg.reset(a_folder_of_other_things()), ValueError, "directory must be a folder of art"),
    "reset, everything": (lambda: tg.reset(everything=3), TypeError, "everything must be True or False"),
    "debugged number": (lambda: tg.prepare_debug(3), TypeError, "directory must be a path"),
    "debugged runs": (lambda: tg.prepare_debug("d", runs="back"), ValueError, "runs must be one of 'kernels'"),
    "debugged gdb": (lambda: tg.prepare_debug("d", gdb="x"), TypeError, "gdb must be True or False"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_named(name):
    call, kind, words = REFUSED[name]
    with pytest.raises(kind) as raised:
        call()
    assert words in str(raised.value)


def test_a_refused_mark_leaves_nothing():
    tensor = torch.ones(2)
    with pytest.raises(IndexError):
        tg.mark_dynamic(tensor, [0, 9])
    assert not vars(tensor)


def test_resets_that_are_taken(tmp_path, monkeypatch):
    """Of a folder that is not there yet, an empty one, and ours, by any kind of path."""
    monkeypatch.chdir(tmp_path)
    tg.reset("not there yet")
    (tmp_path / "empty").mkdir()
    tg.reset(tmp_path / "empty")
    with tg.prepare_debug("ours"):
        tg.compile(double, backend="eager")(x)
    tg.reset("ours")
    with os.scandir(tmp_path) as found:
        tg.reset(next(entry for entry in found if entry.name == "ours"))
