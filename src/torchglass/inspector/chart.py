"""Where the boxes and arrows of a flow chart stand: blocks of boxes in, rectangles and polylines out.

    blocks = [Block(Box(("main",)), [[Box(("entry 0",))]], [Exit(0, 1)]), Block(Box(("rest",)), [])]
    chart = lay_out(blocks)        # chart.places: boxes with their rectangles, chart.arrows: points to draw through

A block is a head with rows of boxes below it. Blocks stand on shelves, by longest path from the first; what leads on
leaves a row to the right, runs down a strip beside its block, and turns into the channel above the shelf of its
target. What skips a shelf takes a lane at the left edge of the picture, what goes back (a loop) one at the right edge,
and a loop of one block the strip alone. Strips, channels and lanes hold no boxes, so no arrow can cross one; and each
target has a track of its own in them, so lines of different targets cross but never run on top of each other.

Libraries that lay out layers put dots in place of boxes (networkx), are not kept up (grandalf), or need a program
beside (graphviz).
"""

from __future__ import annotations

import itertools
import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

ADVANCE = 7.3
"""Width of a character of a monospace font of 12 pixels: 0.6 of its size in those that browsers use."""

LINE, PAD = 16, 8  # height of a line of text, room around it
_GAP, _INDENT, _TRACK, _MARGIN = 26, 22, 9, 20
_NARROWEST = 60  # of a box: arrows have room to come down on it beside each other
_WIDEST = 1500  # of a shelf; blocks that do not fit go to a shelf of their own below
_MOST_IN_LINE = 4

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """Lines of text; ``kind`` gives the color, ``go`` is where a click leads, ``tip`` the whole text."""

    lines: tuple[str, ...]
    kind: str = ""
    go: str = ""
    tip: str = ""

    @property
    def width(self) -> float:
        return max(_NARROWEST, max(map(columns, self.lines), default=0) * ADVANCE + 2 * PAD)

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + PAD


@dataclass(frozen=True)
class Exit:
    """Control goes from the end of a row to the head of another block; ``calls``: and comes back."""

    row: int
    target: int
    calls: bool = False


@dataclass(frozen=True)
class Block:
    head: Box
    rows: list[list[Box]]
    exits: list[Exit] = field(default_factory=list)


@dataclass(frozen=True)
class Placed:
    """A box with its rectangle."""

    box: Box
    x: float
    y: float

    @property
    def right(self) -> float:
        return self.x + self.box.width

    @property
    def bottom(self) -> float:
        return self.y + self.box.height

    @property
    def middle(self) -> float:
        return self.y + self.box.height / 2


@dataclass(frozen=True)
class Arrow:
    """A polyline from one box to another. ``kind``: ``next`` within a block, ``on``, ``back`` or ``call`` between."""

    points: tuple[Point, ...]
    kind: str
    source: Placed
    target: Placed


@dataclass(frozen=True)
class Chart:
    places: list[Placed]
    arrows: list[Arrow]
    width: float
    height: float


def columns(text: str) -> int:
    """How many characters' width the text takes; Chinese, Japanese and Korean ones take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def wrapped(text: str, width: int, most: int) -> list[str]:
    """The text in at most ``most`` lines of ``width`` characters, with ``…`` where something is left out."""
    narrow = width if columns(text) == len(text) else width // 2
    return textwrap.wrap(text, narrow, max_lines=most, placeholder=" …") or [""]


def lay_out(blocks: list[Block]) -> Chart:
    """The chart of blocks; control enters at the first."""
    return _Layout(blocks).chart()


class _Layout:
    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.shelves = _shelves(blocks, _ranks(blocks))
        self.shelf_of = {block: n for n, shelf in enumerate(self.shelves) for block in shelf}
        self.heads: dict[int, Placed] = {}
        self.rows: dict[tuple[int, int], list[Placed]] = {}
        self.arrows: list[Arrow] = []
        self.strips: dict[tuple[int, int], float] = {}  # (block, target) -> x
        self.landings: dict[int, float] = {}  # target -> x of the arrows into its head
        self.tracks = self._tracks()  # (channel, target) -> which of its tracks
        self.heights: dict[tuple[int, int], float] = {}  # (channel, target) -> y
        self.lanes: dict[tuple[str, int], float] = {}  # (side, target) -> x

    def chart(self) -> Chart:
        skipped = _numbered(e.target for b, e in self._exits() if self._way(b, e.target) == "skip")
        returned = _numbered(e.target for b, e in self._exits() if self._way(b, e.target) == "back")
        left = _MARGIN + len(skipped) * _TRACK + (len(skipped) > 0) * _TRACK
        right, bottom = self._place(left)
        self.lanes |= {("skip", target): _MARGIN + n * _TRACK for target, n in skipped.items()}
        self.lanes |= {("back", target): right + (n + 1) * _TRACK for target, n in returned.items()}
        for shelf in self.shelves:
            self._land(shelf)
        for block, leaving in self._exits():
            self._route(block, leaving)
        width = right + (len(returned) + 1) * _TRACK + _MARGIN
        return Chart([*self.heads.values(), *itertools.chain(*self.rows.values())], self.arrows, width, bottom)

    def _exits(self) -> list[tuple[int, Exit]]:
        return [(number, leaving) for number, block in enumerate(self.blocks) for leaving in block.exits]

    def _way(self, source: int, target: int) -> str:
        """How an arrow goes: to itself, to the next shelf, over a lane further down, or over one back."""
        step = self.shelf_of[target] - self.shelf_of[source]
        return "self" if source == target else "next" if step == 1 else "skip" if step > 1 else "back"

    def _tracks(self) -> dict[tuple[int, int], int]:
        """Channel ``n`` is above shelf ``n``. A target has a track in the one above it, and where lines to it leave."""
        wanted: dict[int, dict[int, None]] = defaultdict(dict)
        for lanes in (True, False):  # lines to the lanes above those that come in
            for block, leaving in self._exits():
                way = self._way(block, leaving.target)
                if lanes and way in ("skip", "back"):
                    wanted[self.shelf_of[block] + 1].setdefault(leaving.target)
                elif not lanes and way != "self":
                    wanted[self.shelf_of[leaving.target]].setdefault(leaving.target)
        return {(channel, t): n for channel, targets in wanted.items() for n, t in enumerate(targets)}

    # --- boxes -------------------------------------------------------------------------------------------------------
    def _place(self, left: float) -> tuple[float, float]:
        """Put all boxes down; returns the right edge of the widest shelf, and the bottom of the picture."""
        right, y = 0.0, float(_MARGIN)
        for channel in range(len(self.shelves) + 1):
            tracks = {t: n for (c, t), n in self.tracks.items() if c == channel}
            self.heights |= {(channel, t): y + (n + 1) * _TRACK for t, n in tracks.items()}
            y += (len(tracks) + 1) * _TRACK + _GAP / 2 if tracks else _GAP / 2 * (channel > 0)
            if channel < len(self.shelves):
                x, below = left, y
                for block in self.shelves[channel]:
                    x, bottom = self._block(block, x, y)
                    below = max(below, bottom)
                    x += 2 * _GAP
                right, y = max(right, x - 2 * _GAP), below
        return right, y + _MARGIN

    def _block(self, number: int, left: float, top: float) -> tuple[float, float]:
        block = self.blocks[number]
        self.heads[number] = head = Placed(block.head, left, top)
        right, y = head.right, head.bottom
        for n, row in enumerate(block.rows):
            places: list[Placed] = []
            for begin in range(0, len(row), _MOST_IN_LINE):
                y += LINE
                x = left + _INDENT + LINE * (begin > 0)
                line = row[begin : begin + _MOST_IN_LINE]
                for box in line:
                    places.append(Placed(box, x, y))
                    x += box.width + _GAP
                right = max(right, x - _GAP)
                y += max(box.height for box in line)
            self.rows[number, n] = places
            self._arrows_in_row(head, places)
        targets = _numbered(leaving.target for leaving in block.exits)
        self.strips |= {(number, target): right + (n + 1.5) * _TRACK for target, n in targets.items()}
        return right + (len(targets) + 1) * _TRACK * (len(targets) > 0), y

    def _arrows_in_row(self, head: Placed, row: list[Placed]) -> None:
        for before, place in zip([head, *row], row):
            if before is head:
                x = head.x + _INDENT / 2
                points: tuple[Point, ...] = ((x, head.bottom), (x, place.middle), (place.x, place.middle))
            elif place.y == before.y:
                y = (before.y + min(before.bottom, place.bottom)) / 2
                points = ((before.right, y), (place.x, y))
            else:  # around to the next line
                x, lead, y = before.x + before.box.width / 2, place.x - LINE / 2, place.y - LINE / 2
                points = ((x, before.bottom), (x, y), (lead, y), (lead, place.middle), (place.x, place.middle))
            self.arrows.append(Arrow(points, "next", before, place))

    def _land(self, shelf: list[int]) -> None:
        """Where arrows come down on the heads of a shelf: not above where one leaves the shelf before."""
        number = self.shelf_of[shelf[0]]
        taken = [x for (block, _), x in self.strips.items() if self.shelf_of[block] == number - 1]
        for block in shelf:
            head = self.heads[block]
            steps = range(int(head.box.width - 3 * PAD))
            free = [x for x in (head.x + 2 * PAD + n for n in steps) if all(abs(x - t) > 3 for t in taken)]
            self.landings[block] = free[0] if free else head.x + 2 * PAD

    # --- arrows between blocks ---------------------------------------------------------------------------------------
    def _route(self, number: int, leaving: Exit) -> None:
        block, target = self.blocks[number], leaving.target
        source, head = self.rows[number, leaving.row][-1], self.heads[target]
        together = _numbered(e.target for e in block.exits if e.row == leaving.row)
        start = source.y + source.box.height * (together[target] + 1) / (len(together) + 1)
        strip, way = self.strips[number, target], self._way(number, target)
        points: list[Point] = [(source.right, start), (strip, start)]
        if way == "self":
            points += [(strip, head.middle), (head.right, head.middle)]
        else:
            below = self.heights[self.shelf_of[number] + 1, target]
            above = self.heights[self.shelf_of[target], target]
            points.append((strip, below))
            if way != "next":
                lane = self.lanes[way, target]
                points += [(lane, below), (lane, above)]
            points += [(self.landings[target], above), (self.landings[target], head.y)]
        kind = "call" if leaving.calls else "back" if way in ("self", "back") else "on"
        self.arrows.append(Arrow(tuple(points), kind, source, head))


def _numbered(items: Iterable[int]) -> dict[int, int]:
    """The different ones, by order of first appearance."""
    return {item: n for n, item in enumerate(dict.fromkeys(items))}


def _ranks(blocks: list[Block]) -> list[int]:
    """The longest path from the first block, over the exits that do not go back."""
    order: list[int] = []  # blocks after all that they lead to
    seen: set[int] = set()
    for start in range(len(blocks)):
        walk = [(start, iter(blocks[start].exits))] if start not in seen else []
        seen.add(start)
        while walk:
            block, exits = walk[-1]
            target = next((e.target for e in exits if e.target not in seen), None)
            if target is None:
                order.append(walk.pop()[0])
            else:
                seen.add(target)
                walk.append((target, iter(blocks[target].exits)))
    order.reverse()
    position = {block: n for n, block in enumerate(order)}
    ranks = [0] * len(blocks)
    for block in order:
        for leaving in blocks[block].exits:
            if position[leaving.target] > position[block]:
                ranks[leaving.target] = max(ranks[leaving.target], ranks[block] + 1)
    return ranks


def _shelves(blocks: list[Block], ranks: list[int]) -> list[list[int]]:
    """Blocks side by side: those of a rank, in the order of what leads to them, as long as they fit."""
    shelves: list[list[int]] = []
    position: dict[int, int] = {}
    for rank in range(max(ranks, default=-1) + 1):
        before = {
            b: [position[s] for s, source in enumerate(blocks) for e in source.exits if e.target == b and s in position]
            for b in range(len(blocks))
            if ranks[b] == rank
        }
        width = float(_WIDEST)
        for b in sorted(before, key=lambda b: (sum(before[b]) / max(len(before[b]), 1), b)):
            rows = [sum(box.width + _GAP for box in row[:_MOST_IN_LINE]) for row in blocks[b].rows]
            wide = 2 * _GAP + max([blocks[b].head.width, *rows])
            width += wide
            if width > _WIDEST:
                shelves.append([])
                width = wide
            position[b] = len(position)
            shelves[-1].append(b)
    return shelves
