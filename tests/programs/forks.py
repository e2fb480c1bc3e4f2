"""A program that forks while another of its threads compiles: run by test_threads.py.

python -m tests.programs.forks 15
"""

import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import time
import traceback

import torch
from tests.store.sharing import is_differentiating

import torchglass as tg

torch.set_num_threads(1)


class Deep(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)).sin() + x
        tg.graph_break()
        return x.sum()


def child():
    faulthandler.dump_traceback_later(50)
    signal.alarm(60)
    x = torch.randn(16, requires_grad=is_differentiating())
    found = tg.compile(lambda x: (x.sin() * 2 + 1).sum())(x)
    assert torch.allclose(found, (x.sin() * 2 + 1).sum())
    if x.requires_grad:
        found.backward()
        assert torch.allclose(x.grad, 2 * x.detach().cos())
    assert gc.isenabled() and not torch.is_anomaly_enabled() and sys.getrecursionlimit() < 10_000
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def main(forks):
    done = threading.Event()

    def compiles():
        while not done.is_set():
            tg.compile(Deep(10))(torch.randn(8, 8)).backward()

    thread = threading.Thread(target=compiles)
    thread.start()
    draw, failed = random.Random(0), 0
    for _ in range(forks):
        time.sleep(draw.random() * 0.3)
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            print(f"a child was ended by {signal.Signals(os.WTERMSIG(status)).name}")
        failed += status != 0
    done.set()
    thread.join()
    print(f"{failed} of {forks} children failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
