"""Tuples with names that C makes (torch.return_types, time.struct_time, os.stat_result), made and read inside."""

import os
import sys
import time

import pytest
import torch
import torch.utils._pytree as pytree

import torchglass as tg

STAT = os.stat("/")


def mapped(x):
    return pytree.tree_map(lambda t: t + 1, torch.max(x, dim=0))


def made(x):
    values, places = torch.max(x, 0)
    found = torch.return_types.max((values + 1, places))
    return found, found.values, found[1]


def made_of_its_class(x):
    found = torch.max(x, 0)
    return type(found)(t * 2 for t in found)


def struct_time(x):
    day = time.struct_time((2020, 1, 2, 3, 4, 5, 6, 7, 0))
    return x + day.tm_year, day, day[1], day.tm_zone


def too_short(x):
    return time.struct_time((1, 2)), x


def made_of_more(x):
    found = os.stat_result(range(10))
    return x + found.st_size, found, found.st_atime


def over_a_break(x):
    found = torch.sort(x)
    tg.graph_break()
    return found.values + 1, found, found.indices


def of_the_process(x):
    return x + sys.version_info.major + STAT.st_size, sys.version_info[:2], sys.float_info.max_exp, STAT


PROGRAMS = [mapped, made, made_of_its_class, struct_time, too_short, made_of_more, over_a_break, of_the_process]


def outcome(function, x):
    try:
        return repr(function(x))
    except TypeError as error:
        return repr(error)


@pytest.mark.parametrize("function", PROGRAMS)
def test_struct_sequences(function):
    x = torch.arange(6.0).reshape(2, 3)
    compiled = tg.compile(function, backend="eager", fullgraph=function in (mapped, made, made_of_its_class))
    for _ in range(2):
        assert outcome(compiled, x) == outcome(function, x)
