"""Context managers of PyTorch, and what its functions are rehearsed with."""

# mypy: ignore-errors

from __future__ import annotations

import torch
from torch.autograd.profiler import record_function

from .registry import polyfill


class FunctionContext:
    """What ``forward`` and ``backward`` get as ``ctx`` while they are rehearsed."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self.to_save = ()

    @property
    def saved_tensors(self):
        return self.to_save

    saved_variables = saved_tensors

    def save_for_backward(self, *tensors):
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        pass

    def mark_dirty(self, *tensors):
        pass

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, value):
        pass


class nothing_changes:
    """A context manager that does nothing."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return None


def without_gradients(function, *args):
    with torch.no_grad():
        return function(*args)


@polyfill(record_function.__enter__)
def enter_label(label):
    """``record_function.__enter__`` that records nothing, since operations of a graph have no names of the user's; nor
    does its ``__exit__`` then, which may run behind a break.
    """
    label.run_callbacks_on_exit = False
    return label


@polyfill(record_function.__exit__)
def exit_label(label, *_):
    if label.run_callbacks_on_exit:  # entered outside
        torch.ops.profiler._record_function_exit._RecordFunction(label.record)
    label.run_callbacks_on_exit = True
