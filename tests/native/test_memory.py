"""Memory of generated graphs: blocks are handed out again, never twice at once, and what is kept stays bounded."""

import subprocess
import sys
import threading

import torch

from torchglass import _native

SIDE = 512  # 1 MB of float32: far above the size from which blocks are kept


def make(side=SIDE):
    return _native.empty_strided_cpu((side, side), (side, 1), torch.float32)


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
    _native.empty_strided_cpu((side, side), (side, 1), torch.float32)
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
