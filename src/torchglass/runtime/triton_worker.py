"""The process that compiles Triton's kernels: jobs in at standard input, machine code out at standard output.

It is run as a script by ``runtime.triton_compiler`` and imports Triton alone, no torch, which takes 0.3 seconds in
place of 3, and starts no threads: so it may fork, and every kernel is compiled by a child of its own, which ends with
it. One of the first things it does is to compile a kernel of no use: what children find done they need not do.

Messages are pickles behind their length. What comes in is ``(path, text, {number: kernel}, aligned, capability)``, a
job for each kernel; an answer is ``(number, (cubin, function, shared bytes), "")``, or ``(number, None, why)``. The
process ends when its input does, and when it has had nothing to do for ``IDLE`` seconds. Whoever asks may read answers
only when they are needed, so they wait in a queue here: this process never stops reading because nobody reads it.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose names would be taken for modules

import contextlib
import linecache
import os
import pickle
import re
import selectors
import signal
import struct
import tempfile

IDLE = 20.0
HEADER = struct.Struct("<Q")
OPTIONS = ("num_warps", "maxnreg")  # what of a configuration Triton is told, by its own names
SETTINGS = {
    "enable_fp_fusion": False,  # eager's operators are kernels of their own: no sum there is one with a product
    "enable_reflect_ftz": False,  # and they do not take the smallest numbers for 0
}
BLOCKS = "BLOCK"  # constants of a kernel end so
PACKED_ADD = re.compile(r"\badd\.[su]16x2\s+(%\w+), (%\w+), (%\w+);")
ADDS_APART = (
    r"{ .reg .b16 a, b, c, d; mov.b32 {a, b}, \2; mov.b32 {c, d}, \3; "
    r"add.s16 a, a, c; add.s16 b, b, d; mov.b32 \1, {a, b}; }"
)
NOTHING = """import triton
import triton.language as tl


@triton.jit
def nothing(x_ptr, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.extra.libdevice.exp(1.0))


CONFIGURATIONS = {"nothing": {"signature": "*fp32:16", "XBLOCK": 128, "num_warps": 4}}
"""


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # what Triton prints is no answer
    Worker(0, answers).run()


class Worker:
    """Jobs that wait, the children at work by the pipes they answer through, and answers that nobody has read yet."""

    def __init__(self, jobs: int, answers: int) -> None:
        self.jobs, self.answers = jobs, answers
        self.waiting: list = []
        self.heard = b""
        self.said: dict = {}
        self.unread = bytearray()
        self.most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.modules: dict = {}
        self.warm = False
        self.selector = selectors.DefaultSelector()
        self.selector.register(jobs, selectors.EVENT_READ)
        os.set_blocking(answers, False)

    def run(self) -> None:
        while True:
            found = self.selector.select(IDLE)
            if not found and not self.said and not self.unread:
                return
            for key, _ in found:
                if key.fd == self.jobs:
                    if not self.hear():
                        return
                elif key.fd == self.answers:
                    self.give()
                else:
                    self.pass_on(key.fd)
            while self.waiting and len(self.said) < self.most:
                self.begin(self.waiting.pop(0))

    def hear(self) -> bool:
        """Take jobs in. Whether there may be more."""
        piece = os.read(self.jobs, 1 << 20)
        messages, self.heard = whole(self.heard + piece)
        for path, text, kernels, *how in messages:
            self.waiting += [(number, path, text, kernel, *how) for number, kernel in kernels.items()]
            self.warm_up(how[-1])
        return bool(piece)

    def begin(self, job: tuple) -> None:
        """A child for a job."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            status = 1
            try:
                write(writing, self.answer(job))
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        self.said[reading] = [child, job[0], b""]
        self.selector.register(reading, selectors.EVENT_READ)

    def warm_up(self, capability: int) -> None:
        """Compile a kernel here, for what that leaves in memory."""
        if not self.warm:
            self.warm = True
            self.answer((0, "<nothing>", NOTHING, "nothing", True, capability))

    def answer(self, job: tuple) -> tuple:
        number, path, text, kernel, aligned, capability = job
        try:
            module = self.modules.get((path, text))
            if module is None:
                self.modules = {(path, text): (module := loaded(path, text))}
            return number, compiled(module, kernel, aligned, capability), ""
        except BaseException as error:  # whatever it is, a person is to read it
            return number, None, f"{type(error).__name__}: {error}"

    def pass_on(self, reading: int) -> None:
        """What a child has said; all of it once it has ended."""
        child, number, said = self.said[reading]
        piece = os.read(reading, 1 << 20)
        if piece:
            self.said[reading][2] = said + piece
            return
        self.selector.unregister(reading)
        os.close(reading)
        del self.said[reading]
        _, status = os.waitpid(child, 0)
        if not whole(said)[0]:
            said = message((number, None, f"the process that compiled it ended with status {status}"))
        if not self.unread:
            self.selector.register(self.answers, selectors.EVENT_WRITE)
        self.unread += said

    def give(self) -> None:
        """As much of the answers as there is room for."""
        with contextlib.suppress(BlockingIOError):
            del self.unread[: os.write(self.answers, self.unread)]
        if not self.unread:
            self.selector.unregister(self.answers)


def message(content: object) -> bytes:
    data = pickle.dumps(content)
    return HEADER.pack(len(data)) + data


def whole(heard: bytes) -> tuple:
    """The messages at the beginning of what was heard, and the rest."""
    messages = []
    while len(heard) >= HEADER.size:
        end = HEADER.size + HEADER.unpack_from(heard)[0]
        if len(heard) < end:
            break
        messages.append(pickle.loads(heard[HEADER.size : end]))
        heard = heard[end:]
    return messages, heard


def write(file: int, content: object) -> None:
    send(file, message(content))


def send(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def loaded(path: str, text: str) -> dict:
    """The names of a kernels file. Triton looks for the functions' text, which need not lie in the file any more."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names: dict = {"__name__": "kernels", "__file__": path}
    exec(compile(text, path, "exec"), names)
    return names


def without_packed_adds(ptx: str) -> str:
    """PTX whose additions of two 16-bit numbers at once are two additions.

    ptxas 12.8 and 12.9, which come with Triton 3.6 and 3.9, assemble one with a constant as ``VIADD.16x2 R, R, 0x0``
    for sm_90: it adds nothing. LLVM writes them where it finds that places in a tile of less than 65,536 elements fit
    16 bits, and so ``i % 1045 - 980 < 49``, of a concatenation, was false everywhere.
    """
    return PACKED_ADD.sub(ADDS_APART, ptx)


@contextlib.contextmanager
def correct_assembly():
    from triton.backends.nvidia.compiler import CUDABackend

    made = CUDABackend.make_cubin
    CUDABackend.make_cubin = lambda backend, ptx, *rest: made(backend, without_packed_adds(ptx), *rest)
    try:
        yield
    finally:
        CUDABackend.make_cubin = made


def compiled(names: dict, kernel: str, aligned: bool, capability: int) -> tuple:
    """Machine code, what its function is called, and the bytes of shared memory that it needs."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, configuration = names[kernel], names["CONFIGURATIONS"][kernel]
    types = configuration["signature"].split()
    constants = {name: value for name, value in configuration.items() if name.endswith(BLOCKS)}
    kinds = [*(t.partition(":")[0] for t in types), *("constexpr" for _ in function.arg_names[len(types) :])]
    divisible = {(n,): [["tt.divisibility", 16]] for n, t in enumerate(types) if aligned and t.endswith(":16")}
    source = ASTSource(function, dict(zip(function.arg_names, kinds)), constants, divisible)
    options = SETTINGS | {name: configuration[name] for name in OPTIONS if name in configuration}
    with tempfile.TemporaryDirectory(prefix="torchglass-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder  # what is worth keeping the caller keeps
        with correct_assembly():
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        cubin = made.asm["cubin"]
    scratch = getattr(made.metadata, "global_scratch_size", 0)
    if scratch:
        raise RuntimeError(f"{kernel} needs {scratch} bytes of scratch memory")
    return cubin, made.metadata.name, made.metadata.shared


if __name__ == "__main__":
    main()
