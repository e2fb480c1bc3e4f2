"""What the machine interprets instead of those functions of PyTorch's optimizers that ask for data or break the graph.

No branch here depends on a tensor, and what eager computes of step counts in Python's floats has as many digits.
"""

# mypy: ignore-errors

from __future__ import annotations

import itertools

import torch

from ...torch_compat import set_grad_mode


def drop_grads_of_optimizer(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def zero_grads_of_optimizer(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            grad = parameter.grad
            if grad is not None:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()


def in_grad_mode_of_optimizer(step, optimizer, *args, **kwargs):
    before = torch.is_grad_enabled()
    set_grad_mode(is_differentiable(optimizer))
    try:
        return step(optimizer, *args, **kwargs)
    finally:
        set_grad_mode(before)


def capturable_in_double(formula, scalars, *lists, capturable, **options):
    """PyTorch's formula for captured CUDA graphs, which selects and does not branch, on counts in double precision.

    ``scalars``: how many of the lists, the last ones, hold single numbers.
    """
    counts = lists[-scalars:]
    exact = [[count.double() for count in some] for some in counts]
    formula(*lists[:-scalars], *exact, capturable=True, **options)
    for some, results in zip(counts, exact):
        for count, result in zip(some, results):
            count.copy_(result)


def fused(formula, params, grads, *state, grad_scale=None, found_inf=None, **options):
    """An optimizer's step with ``fused=True``; under a GradScaler it does nothing where a gradient is infinite.

    Momenta that such a step would have made are zeros: eager leaves them as the memory was.
    """
    lists = (params, grads, *state)
    before = [[None if x is None else x.clone() for x in some] for some in lists] if found_inf is not None else ()
    if grad_scale is not None:
        for grad in grads:
            grad.div_(grad_scale)
    formula(params, grads, *state, grad_scale=None, found_inf=None, **options)
    for some, old in zip(lists, before):
        for x, kept in zip(some, old):
            if x is not None:
                x.copy_(torch.where(found_inf == 1, 0.0 if kept is None else kept, x))


def adafactor(
    params, grads, row_vars, col_vars, variances, state_steps, grad_scale, found_inf, *,
    d, lr, beta2_decay, weight_decay, eps1, eps2, maximize, has_complex,
):  # fmt: skip
    """Adafactor (arXiv 1804.04235): a matrix of squares is estimated from the means of its rows and columns."""
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    for param, grad, rows, columns, squares, count in zip(params, grads, row_vars, col_vars, variances, state_steps):
        grad = -grad if maximize else grad
        least = torch.finfo(param.dtype).eps if eps1 is None else eps1
        count += 1
        steps = count.double()
        newest = steps**beta2_decay
        rate = _at_least(eps2, _root_mean_square(param)) * steps.rsqrt().clamp(max=lr)
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        if grad.dim() > 1:
            _average(rows, torch.linalg.vector_norm(grad, dim=-1, keepdim=True).square() / grad.size(-1), newest)
            _average(columns, torch.linalg.vector_norm(grad, dim=-2, keepdim=True).square() / grad.size(-2), newest)
            estimate = rows @ columns / rows.mean(dim=-2, keepdim=True).clamp(min=least)
        else:
            _average(squares, grad * grad, newest)
            estimate = squares
        update = estimate.clamp(min=least * least).rsqrt() * grad
        param.sub_(update * (rate / _at_least(1.0, _root_mean_square(update) / d)))


def _root_mean_square(x):
    return torch.linalg.vector_norm(x).double() / x.numel() ** 0.5


def _at_least(bound, x):
    """``max(bound, x)`` of Python's, to which a NaN is not the larger."""
    return torch.where(x > bound, x, bound)


def _average(average, new, weight):
    wide = torch.promote_types(average.dtype, torch.float32)
    average.copy_(torch.lerp(average.to(wide), new.to(wide), weight.to(wide)))


# --- GradScaler -------------------------------------------------------------------------------------------------------
def found_infinite(optimizer_state):
    return sum(found for found in optimizer_state["found_inf_per_device"].values()) != 0


def is_differentiable(optimizer):
    return optimizer.defaults["differentiable"]


def written_by_step(optimizer):
    """The tensors that a step of an optimizer whose state is made writes to."""
    written = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            written.append(parameter)
            if parameter in optimizer.state:
                written.extend(value for value in optimizer.state[parameter].values() if value is not None)
    return written


def clones(tensors):
    with torch.no_grad():
        return [tensor.clone() for tensor in tensors]


def restore_where(condition, tensors, values):
    with torch.no_grad():
        for tensor, value in zip(tensors, values):
            tensor.copy_(torch.where(condition, value, tensor))


# --- AveragedModel ----------------------------------------------------------------------------------------------------
def update_average(averaged_model, model):
    """``AveragedModel.update_parameters`` with a function of PyTorch's own, of which the first call copies."""
    module, many, one = averaged_model.module, averaged_model.multi_avg_fn, averaged_model.avg_fn
    if many is None and one is None:
        one = torch.optim.swa_utils.get_swa_avg_fn()
    if averaged_model.use_buffers:
        averages = itertools.chain(module.parameters(), module.buffers())
        values = itertools.chain(model.parameters(), model.buffers())
    else:
        averages, values = averaged_model.parameters(), model.parameters()
    for average, value in zip(averages, values):
        value = value.detach().to(average.device)
        count = averaged_model.n_averaged.to(average.device)
        if many is not None:
            result = average.detach().clone()
            many([result], [value], count)
        else:
            result = one(average.detach(), value, count)
        average.detach().copy_(torch.where(count == 0, value, result))
    if not averaged_model.use_buffers:
        for average, value in zip(module.buffers(), model.buffers(), strict=True):
            average.detach().copy_(value.detach().to(average.device))
    averaged_model.n_averaged += 1


def drop_grads_of_module(module):
    for parameter in module.parameters():
        parameter.grad = None


def group_tensors(lists, with_indices=False):
    """Lists of tensors by device and dtype of the first list's, with the places that they came from. (The order of
    eager's groups is that of a hash table.)
    """
    groups = {}
    for n, first in enumerate(lists[0]):
        rows, places = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for row, tensors in zip(rows, lists):
            row.append(tensors[n])
        if with_indices:
            places.append(n)
    return groups
