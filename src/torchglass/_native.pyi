"""Types of the native core (csrc/). The C++ files' head comments say what each does."""

import torch

class Kernel:
    __name__: str
    owner: object
    def __init__(self, address: int, name: str, owner: object = None) -> None: ...
    def __call__(self, *args: torch.Tensor | int) -> None: ...

def empty_strided_cpu(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor: ...
def reinterpret(
    tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], storage_offset: int
) -> torch.Tensor: ...
