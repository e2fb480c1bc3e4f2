"""Memory of generated graphs: blocks are handed out again, never twice at once, and what is kept stays bounded."""

import queue
import subprocess
import sys
import threading

import torch

from torchglass import _native

SIDE = 512  # 1 MB of float32: far above the size from which blocks are kept


def make(side=SIDE):
    return _native.empty_strided((side, side), (side, 1), torch.float32)


def test_a_dead_tensors_block_is_handed_out_again():
    _native.release_memory()
    first = make()
    address = first.data_ptr()
    del first
    assert make().data_ptr() == address


def test_live_tensors_never_share():
    live = [make().fill_(n) for n in range(8)]
    for _ in range(50):
        live[3] = make().fill_(3)
    assert len({t.data_ptr() for t in live}) == len(live)
    assert [float(t[0, 0]) for t in live] == list(range(8))


def test_a_view_keeps_the_block():
    view = make().fill_(7)[0]
    others = [make().fill_(1) for _ in range(4)]
    assert float(view.sum()) == 7 * SIDE
    del others


BOUNDED = """
import torch
from torchglass import _native
for side in range(300, 700):
    _native.empty_strided((side, side), (side, 1), torch.float32)
print(_native.release_memory(), _native.release_memory())
"""


def test_what_is_kept_is_bounded_by_what_was_in_use():
    """In a process of its own: the most that was in use is the process's."""
    done = subprocess.run([sys.executable, "-c", BOUNDED], capture_output=True, text=True, check=True)
    kept, again = map(int, done.stdout.split())
    most = (699 * 699 * 4 // 4096 + 1) * 4096
    assert 0 < kept <= most + (32 << 20)
    assert again == 0


def test_threads():
    wrong = []

    def work(number):
        for _ in range(300):
            t = make(160).fill_(number)
            if float(t.sum()) != number * 160 * 160:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_storage_can_grow():
    t = make()
    t.resize_(2 * SIDE, SIDE)
    t.fill_(1)
    assert float(t.sum()) == 2 * SIDE * SIDE


DECAYING = """
import torch
from torchglass import _native
def make(megabytes):
    return _native.empty_strided((megabytes, 1 << 18), (1 << 18, 1), torch.float32)
for times in (1, 12_000, 40_000):  # an epoch has 16,384 allocations
    large = [make(64) for _ in range(4)]
    del large
    for _ in range(times):
        make(1)
    print(_native.release_memory() >> 20)
"""


def test_what_one_large_call_needed_is_given_back_in_time():
    done = subprocess.run([sys.executable, "-c", DECAYING], capture_output=True, text=True, check=True)
    at_first, soon, later = map(int, done.stdout.split())
    assert at_first == soon == 4 * 64 + 1  # all that was in use at once, in this epoch or the one before
    assert later <= 1 + 32  # what was in use lately, and the slack


def test_what_each_step_needs_is_kept_between_steps():
    _native.release_memory()
    addresses = set()
    for _ in range(50):
        step = [make(side) for side in range(256, 320)]
        addresses |= {t.data_ptr() for t in step}
        del step
    assert len(addresses) == 64


def test_threads_that_allocate_and_free_for_each_other():
    """Blocks of several sizes are made by one thread and die on another, while a third empties the pool."""
    handed: queue.SimpleQueue = queue.SimpleQueue()
    wrong, sides, rounds = [], range(130, 150), 2000

    def produce(number):
        for i in range(rounds):
            side = sides[(i * 7 + number) % len(sides)]
            handed.put((make(side).fill_(number * rounds + i), number * rounds + i))

    def consume():
        kept = []
        while (item := handed.get()) is not None:
            kept.append(item)
            if len(kept) > 5:
                tensor, number = kept.pop(0)
                if not bool((tensor == number).all()):
                    wrong.append(number)

    makers = [threading.Thread(target=produce, args=(n,)) for n in range(3)]
    takers = [threading.Thread(target=consume) for _ in range(3)]
    for thread in (*makers, *takers):
        thread.start()
    while any(thread.is_alive() for thread in makers):
        _native.release_memory()
    for _ in takers:
        handed.put(None)
    for thread in (*makers, *takers):
        thread.join()
    assert not wrong
    _native.release_memory()
    assert _native.release_memory() == 0
