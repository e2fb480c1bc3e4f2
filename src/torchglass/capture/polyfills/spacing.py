"""``torch.linspace`` between numbers that change, which its operator takes as they are."""

import torch


def linspace(start, end, steps, *, dtype=None, device=None):
    # as the kernels compute it: the first half from the start, the second one from the end
    places = torch.arange(steps, dtype=torch.get_default_dtype() if dtype is None else dtype, device=device)
    step = (end - start) / max(steps - 1, 1)
    return torch.where(places < max(steps // 2, 1), places * step + start, (places - (steps - 1)) * step + end)
