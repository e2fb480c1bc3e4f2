"""The flow chart's layout: whatever leads where, arrows cross no box, boxes are apart, texts are inside theirs."""

import re
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from torchglass.inspector.chart import ADVANCE, PAD, Block, Box, Exit, columns, lay_out, wrapped
from torchglass.inspector.flow import flow
from torchglass.records.breaks import GraphBreak
from torchglass.records.compilation import EntryRecord, FunctionRecord, GraphRecord
from torchglass.records.origin import Origin

BOXES = st.lists(st.text("abc xyz_", max_size=40), min_size=1, max_size=3).map(lambda lines: Box(tuple(lines)))


@st.composite
def charts(draw):
    """Blocks in a chain, as resume functions are, with any further exits: ahead, back, to themselves."""
    count = draw(st.integers(1, 12))
    blocks = []
    for number in range(count):
        rows = draw(st.lists(st.lists(BOXES, min_size=1, max_size=6), max_size=4))
        one = st.builds(Exit, st.integers(0, max(len(rows) - 1, 0)), st.integers(0, count - 1), st.booleans())
        exits = draw(st.lists(one, max_size=5 * bool(rows), unique_by=lambda e: (e.row, e.target)))
        if (
            rows
            and number + 1 < count
            and draw(st.booleans())
            and (0, number + 1) not in {(e.row, e.target) for e in exits}
        ):
            exits.append(Exit(0, number + 1))
        blocks.append(Block(draw(BOXES), rows, exits))
    return blocks


def crosses(a, b, place):
    """Does the axis-parallel segment run through the inside of the box?"""
    left, right, top, bottom = min(a[0], b[0]), max(a[0], b[0]), min(a[1], b[1]), max(a[1], b[1])
    return left < place.right - 0.1 and right > place.x + 0.1 and top < place.bottom - 0.1 and bottom > place.y + 0.1


def overlap(a, b):
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom


@settings(max_examples=100, deadline=None)
@given(charts())
def test_no_arrow_crosses_a_box_and_no_two_boxes_overlap(blocks):
    chart = lay_out(blocks)
    assert len(chart.places) == sum(1 + sum(map(len, block.rows)) for block in blocks)
    assert len(chart.arrows) == sum(len(block.exits) + sum(map(len, block.rows)) for block in blocks)
    for arrow in chart.arrows:
        for a, b in pairwise(arrow.points):
            assert a[0] == b[0] or a[1] == b[1]
            assert all(0 < x < chart.width and 0 < y < chart.height for x, y in (a, b))
            assert not [place for place in chart.places if crosses(a, b, place)]
        begin, end = arrow.points[0], arrow.points[-1]
        assert on_edge(begin, arrow.source) and on_edge(end, arrow.target)
    assert not [pair for pair in combinations(chart.places, 2) if overlap(*pair)]
    for place in chart.places:
        assert max(map(columns, place.box.lines)) * ADVANCE + 2 * PAD <= place.box.width


def on_edge(point, place):
    x, y = point
    across, along = x in (place.x, place.right), y in (place.y, place.bottom)
    return (across and place.y <= y <= place.bottom) or (along and place.x <= x <= place.right)


@settings(max_examples=100, deadline=None)
@given(charts())
def test_lines_to_different_blocks_do_not_run_on_top_of_each_other(blocks):
    arrows = [arrow for arrow in lay_out(blocks).arrows if arrow.kind != "next"]
    for one, other in combinations(arrows, 2):
        if one.target == other.target:
            continue
        for a, b in pairwise(one.points):
            for c, d in pairwise(other.points):
                for axis in (0, 1):
                    if a[axis] == b[axis] == c[axis] == d[axis]:
                        cross = 1 - axis
                        low, high = (
                            max(min(a[cross], b[cross]), min(c[cross], d[cross])),
                            min(max(a[cross], b[cross]), max(c[cross], d[cross])),
                        )
                        assert high <= low


def test_wide_characters_take_two_columns():
    assert columns("名前") == 4 and columns("name") == 4
    assert all(columns(line) <= 10 for line in wrapped("名前" * 20, 10, 2))


def test_a_loop_goes_back_and_what_is_not_reached_says_so():
    def entry(text):
        graph_break = GraphBreak("print()", Origin("/a.py", 5, "f"), "")
        return EntryRecord(0, transformed_text=text, graphs=(GraphRecord("graph_0"),), breaks=(graph_break,))

    top = FunctionRecord("f", Origin("/a.py", 1, "f"), entries=[entry("return resume_at_5(x)")])
    again = FunctionRecord("resume_at_5", entries=[entry("return resume_at_5(x) if x else resume_at_9(x)")])
    top.resumes += [again, FunctionRecord("resume_at_9")]
    again.continued = top.resumes[1].continued = top
    text = flow(top)
    assert "not reached yet" in text and "back, in a loop" in text and "calls" not in text
    assert len(re.findall("marker-end", text)) == 9
