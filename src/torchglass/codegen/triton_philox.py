"""What Triton kernels draw random numbers by: the numbers that eager's kernels draw, element by element.

``records.philox`` says which these are. A call of Philox makes four numbers, and takes longer than reading them would:
where four neighbours of a block lie in fours of memory, and eager's threads read vectors, one call is made for them.
Lowering may know that they do (``shift`` is a literal), or the kernel is told: then it makes one call or four. Else
each point makes a call, and takes one of its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

HELPERS = {
    "tg_philox": """\
def tg_philox(place, by_rows, threads, seed, offset, shift):
    if shift >= 2:  # vectors of 4 or 8
        vector = place >> shift
        turn = vector // threads
        thread = vector - turn * threads
        call = (turn << (shift - 2)) + ((place >> 2) - (vector << (shift - 2)))
        lane = place & 3
    else:
        if shift == 1:  # of 2
            call = (place >> 1) // threads
            thread = (place >> 1) - call * threads
            lane = place & 1
        else:
            turn = by_rows // threads
            thread = by_rows - turn * threads
            call = turn >> 2
            lane = turn & 3
    a, b, c, d = tg_philox_call(seed, offset, call, thread)
    return tl.where(lane == 0, a, tl.where(lane == 1, b, tl.where(lane == 2, c, d)))""",
    "tg_philox_fours": """\
def tg_philox_fours(first, place, threads, seed, offset, shift):
    vector = first >> shift
    turn = vector // threads
    call = (turn << (shift - 2)) + ((first >> 2) - (vector << (shift - 2)))
    a, b, c, d = tg_philox_call(seed, offset, call, vector - turn * threads)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), place.shape)""",
    "tg_philox_told": """\
def tg_philox_told(first, place, threads, seed, offset, shift):
    together = shift >= 2
    a = tl.full(first.shape, 0.0, tl.float32)
    b, c, d = a, a, a
    for k in range(tl.where(together, 1, 4)):
        one = first + k
        vector = one >> shift
        turn = vector // threads
        part = tl.maximum(shift - 2, 0)
        parted = (turn << part) + ((one >> 2) - (vector << part))
        call = tl.where(together, parted, turn >> tl.where(shift == 1, 0, 2))
        w, x, y, z = tg_philox_call(seed, offset, call, vector - turn * threads)
        lane = tl.where(shift == 1, one & 1, turn & 3)
        drawn = tl.where(lane == 0, w, tl.where(lane == 1, x, tl.where(lane == 2, y, z)))
        a = tl.where(together, w, tl.where(k == 0, drawn, a))
        b = tl.where(together, x, tl.where(k == 1, drawn, b))
        c = tl.where(together, y, tl.where(k == 2, drawn, c))
        d = tl.where(together, z, tl.where(k == 3, drawn, d))
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), place.shape)""",
    "tg_philox_call": """\
def tg_philox_call(seed, offset, call, thread):
    count = (offset >> 2) + call.to(tl.int64)
    a, b, c, d = tl.philox(seed, count.to(tl.int32), (count >> 32).to(tl.int32), thread.to(tl.int32), 0)
    return tg_philox_float(a), tg_philox_float(b), tg_philox_float(c), tg_philox_float(d)""",
    "tg_philox_float": """\
def tg_philox_float(drawn):  # of (0, 1], as curand_uniform makes it
    return drawn.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10""",
}
"""In the order in which a file may have them; each calls those after it."""


def drawn_in_fours(first: str, args: Sequence[str]) -> str | None:
    """The text of ``philox`` for points of which each four neighbours may share a call; ``first``: their first place.
    None where eager's threads read no such vectors, or count by rows that are not how places are.
    """
    place, by_rows, *others, shift = args
    if place != by_rows or shift in ("0", "1"):
        return None
    return f"tg_philox_{'fours' if shift.isdigit() else 'told'}({', '.join((first, place, *others, shift))})"
