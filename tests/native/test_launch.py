"""The kernel launcher and the cheap tensor constructors of generated wrappers."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchglass import _native

C_SOURCE = """
#include <stdint.h>
#include <unistd.h>
void add(void **a) {
    const float *x = a[0], *y = a[1]; float *out = a[2]; int64_t n = (int64_t)a[3];
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}
void nothing(void **a) {}
void nap(void **a) { usleep(200000); }
void last(void **a) { *(int64_t *)a[0] = (int64_t)a[99]; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text(C_SOURCE)
    subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", "k.c", "-o", "k.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "k.so"))


def kernel(library: ctypes.CDLL, name: str) -> _native.Kernel:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return _native.Kernel(address, name, library)


def test_passes_tensors_and_ints(library: ctypes.CDLL) -> None:
    x, y, out = torch.randn(10), torch.randn(10), torch.zeros(10)
    assert kernel(library, "add")(x, y, out, 7) is None
    assert torch.equal(out[:7], (x + y)[:7])
    assert out[7:].eq(0).all()


def test_views_parameters_and_subclass_tensors_pass_their_data(library: ctypes.CDLL) -> None:
    x = torch.nn.Parameter(torch.randn(10))
    out = torch.zeros(10)
    kernel(library, "add")(x[5:], torch.nn.Buffer(torch.ones(5)), out[5:], 5)
    assert torch.equal(out[5:], x.detach()[5:] + 1)


def test_many_arguments_and_negative_ints(library: ctypes.CDLL) -> None:
    out = torch.zeros(1, dtype=torch.int64)
    kernel(library, "last")(out, *range(98), -5)
    assert out.item() == -5


def test_an_empty_tensor_is_data(library: ctypes.CDLL) -> None:
    kernel(library, "nothing")(torch.empty(0))


@pytest.mark.parametrize("bad", [1.5, None, "x", [1], torch.zeros(2, device="meta"), torch.zeros(2).to_sparse()])
def test_other_arguments_name_kernel_and_position(library: ctypes.CDLL, bad: object) -> None:
    with pytest.raises(TypeError, match="kernel nothing: argument 1 "):
        kernel(library, "nothing")(torch.zeros(1), bad)


def test_refuses_keywords_big_ints_and_null(library: ctypes.CDLL) -> None:
    with pytest.raises(TypeError, match="no keyword"):
        kernel(library, "nothing")(a=1)
    with pytest.raises(OverflowError, match="argument 0"):
        kernel(library, "nothing")(2**64)
    with pytest.raises(ValueError, match="null"):
        _native.Kernel(0, "k")


def test_fake_tensors_are_refused(library: ctypes.CDLL) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4)
    with pytest.raises(TypeError, match="argument 0"):
        kernel(library, "nothing")(fake)


def test_releases_the_gil(library: ctypes.CDLL) -> None:
    nap = kernel(library, "nap")
    start = time.perf_counter()
    threads = [threading.Thread(target=nap, args=(1,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - start < 0.6


def test_owner_lives_as_long_as_the_kernel_and_cycles_are_collected() -> None:
    class Owner:
        kernel: object

    owner = Owner()
    alive = weakref.ref(owner)
    owner.kernel = _native.Kernel(1, "k", owner)
    del owner
    gc.collect()
    assert alive() is None


def test_empty_strided() -> None:
    t = _native.empty_strided((2, 3), (1, 2), torch.bfloat16)
    assert (t.shape, t.stride(), t.dtype, t.requires_grad) == ((2, 3), (1, 2), torch.bfloat16, False)
    t.fill_(1)
    assert _native.empty_strided((), (), torch.int64).shape == ()
    assert _native.empty_strided(torch.Size([0, 4]), (4, 1), torch.bool).numel() == 0
    with pytest.raises(ValueError, match="negative"):
        _native.empty_strided((-1,), (1,), torch.float32)
    with pytest.raises(ValueError, match="length"):
        _native.empty_strided((1,), (1, 1), torch.float32)
    with pytest.raises(TypeError):
        _native.empty_strided([1], (1,), torch.float32)
    with pytest.raises(TypeError):
        _native.empty_strided((1,), (1,), "float32")
    with pytest.raises(RuntimeError):
        _native.empty_strided((2**62, 8), (8, 1), torch.float32)


def test_reinterpret_shares_storage() -> None:
    base = torch.arange(24.0).requires_grad_()
    view = _native.reinterpret(base, (2, 3), (1, 4), 2)
    assert torch.equal(view, base.detach().as_strided((2, 3), (1, 4), 2))
    assert view.storage_offset() == 2 and not view.requires_grad and view.grad_fn is None
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    again = _native.reinterpret(view, (2,), (2,), 0)  # offsets count from the storage's start
    assert again.tolist() == [0.0, 2.0]
    (view * 2).sum()
    del base
    assert view[0, 0].item() == 2.0


def test_reinterpret_refuses_to_leave_the_storage() -> None:
    base = torch.zeros(8)
    assert _native.reinterpret(base, (0, 100), (1, 1), 0).numel() == 0
    for sizes, strides, offset in [((9,), (1,), 0), ((8,), (1,), 1), ((2**40, 2**40), (2**40, 1), 0), ((1,), (1,), -1)]:
        with pytest.raises(ValueError, match="leave the storage"):
            _native.reinterpret(base, sizes, strides, offset)


@pytest.mark.filterwarnings("ignore")  # these kinds of tensors are prototypes
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3).to_sparse(),
        lambda: torch.zeros(3, 3).to_sparse_csr(),
        lambda: torch.zeros(3).to_mkldnn(),
        lambda: torch.quantize_per_tensor(torch.rand(4), 0.1, 0, torch.quint8),
        lambda: torch.nested.nested_tensor([torch.ones(2)]),
    ],
)
def test_reinterpret_refuses_what_is_no_strided_tensor(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(TypeError, match="no plain strided tensor"):
        _native.reinterpret(make(), (1,), (1,), 0)


def test_reinterpret_keeps_a_conjugate_one() -> None:
    view = _native.reinterpret(torch.full((4,), 1 + 2j).conj(), (2,), (1,), 1)
    assert view.tolist() == [1 - 2j] * 2
