"""What Triton kernels draw random numbers by: the numbers that eager's kernels draw, element by element.

``records.philox`` says which these are. A call of Philox makes four numbers, and takes longer than reading them would:
where four neighbours of a block lie in fours of memory, one call is made for them (``tg_philox_fours``) if eager's
threads read vectors. Else each point makes a call, and takes one of its numbers. ``shift`` is a literal where lowering
knows it; then Triton compiles one of the ways.
"""

from __future__ import annotations

from collections.abc import Sequence

HELPERS = {
    "tg_philox": """\
def tg_philox(place, by_rows, threads, captured, seed, offset, within, shift):
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
    a, b, c, d = tg_philox_call(captured, seed, offset, within, call, thread)
    return tl.where(lane == 0, a, tl.where(lane == 1, b, tl.where(lane == 2, c, d)))""",
    "tg_philox_fours": """\
def tg_philox_fours(first, place, by_rows, threads, captured, seed, offset, within, shift):
    if shift >= 2:
        vector = first >> shift
        turn = vector // threads
        call = (turn << (shift - 2)) + ((first >> 2) - (vector << (shift - 2)))
        a, b, c, d = tg_philox_call(captured, seed, offset, within, call, vector - turn * threads)
        drawn = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), place.shape)
    else:
        drawn = tg_philox(place, by_rows, threads, captured, seed, offset, within, shift)
    return drawn""",
    "tg_philox_call": """\
def tg_philox_call(captured, seed, offset, within, call, thread):
    if captured != 0:  # they lie where a CUDA graph finds them
        seed = tl.load(seed.to(tl.pointer_type(tl.int64)))
        offset = tl.load(offset.to(tl.pointer_type(tl.int64))) + within
    count = (offset >> 2) + call.to(tl.int64)
    a, b, c, d = tl.philox(seed, count.to(tl.int32), (count >> 32).to(tl.int32), thread.to(tl.int32), 0)
    return tg_philox_float(a), tg_philox_float(b), tg_philox_float(c), tg_philox_float(d)""",
    "tg_philox_float": """\
def tg_philox_float(drawn):  # of (0, 1], as curand_uniform makes it
    return drawn.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10""",
}
"""In the order in which a file may have them; each calls those after it."""


def drawn_in_fours(first: str, args: Sequence[str]) -> str:
    """The text of ``philox`` for points of which each four neighbours share a call; ``first``: their first place."""
    return f"tg_philox_fours({', '.join((first, *args))})"
