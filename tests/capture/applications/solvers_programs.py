"""Solvers, implicit layers, physics, rendering."""

# ruff: noqa: B007, RUF007
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..tables import rand, table
from .networks import grads, mlp

PROGRAMS, program = table()


@program
def neural_ode():
    field = mlp(3, 8, 3)

    def rk4(f, y, t, dt):
        k1 = f(t, y)
        k2 = f(t + dt / 2, y + dt / 2 * k1)
        k3 = f(t + dt / 2, y + dt / 2 * k2)
        k4 = f(t + dt, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def solve(y, times):
        out = [y]
        for t0, t1 in zip(times[:-1], times[1:]):
            y = rk4(lambda t, y: field(y) * torch.cos(t), y, t0, t1 - t0)
            out.append(y)
        loss = torch.stack(out).square().mean()
        field.zero_grad()
        loss.backward()
        return loss.detach(), grads(field)

    return solve, [(rand(2, 3), torch.linspace(0, 1, 4))] * 2


@program
def adaptive_steps():
    def f(y, tolerance=1e-2):
        t, dt, steps = 0.0, 0.5, 0
        while t < 1.0 and steps < 20:
            slope = -y * (1 + t)
            coarse = y + dt * slope
            half = y + dt / 2 * slope
            fine = half + dt / 2 * (-half * (1 + t + dt / 2))
            error = (coarse - fine).abs().max().item()
            if error < tolerance:
                y, t = fine, t + dt
            dt = min(1.0 - t, dt * (1.5 if error < tolerance else 0.5)) or dt
            steps += 1
        return y, steps

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def fixed_point_layer():
    cell = nn.Linear(4, 4)

    class Implicit(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, x):
            ctx.save_for_backward(z)
            return z.clone()

        @staticmethod
        def backward(ctx, g):
            (z,) = ctx.saved_tensors
            return None, g * (1 + z)

    def f(x):
        z = torch.zeros_like(x)
        with torch.no_grad():
            for n in range(30):
                new = torch.tanh(cell(z) * 0.3 + x)
                if (new - z).norm() < 1e-2:
                    break
                z = new
        out = Implicit.apply(z, x)
        return out.detach(), torch.autograd.grad(out.sum(), x)[0], n

    return f, [(rand(2, 4, grad=True),)] * 2


@program
def physics_informed():
    net = mlp(2, 8, 1)

    def loss(x, t):
        u = net(torch.stack([x, t], -1)).squeeze(-1)
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        total = (u_t + u * u_x - 0.01 * u_xx).square().mean()
        net.zero_grad()
        total.backward()
        return total.detach(), grads(net)

    return loss, [(rand(5, grad=True), rand(5, seed=1, grad=True))] * 2


@program
def hamiltonian():
    energy = mlp(2, 8, 1)

    def step(state):
        with torch.enable_grad():
            state = state.detach().requires_grad_()
            q, p = torch.autograd.grad(energy(state).sum(), state)[0].unbind(-1)
        return state.detach() + 0.1 * torch.stack([p, -q], -1)

    def roll(state):
        path = [state]
        for _ in range(3):
            path.append(step(path[-1]))
        return torch.stack(path)

    return roll, [(rand(4, 2),)] * 2


@program
def spectral_convolution():
    weight = torch.view_as_complex(rand(2, 3, 4, 2)).requires_grad_()

    def f(x):
        freq = torch.fft.rfft(x, norm="ortho")
        out = torch.zeros(x.shape[0], 3, freq.shape[-1], dtype=freq.dtype)
        out[..., :4] = torch.einsum("bif,iof->bof", freq[..., :4], weight)
        y = torch.fft.irfft(out, n=x.shape[-1], norm="ortho")
        return y.detach(), torch.autograd.grad(y.square().sum(), weight)[0]

    return f, [(rand(2, 2, 16),)] * 2


@program
def volume_rendering():
    net = mlp(9, 8, 4)

    def encode(x, levels=1):
        return torch.cat([x, *(fn(2.0**n * x) for n in range(levels) for fn in (torch.sin, torch.cos))], -1)

    def f(origin, direction):
        t = torch.linspace(0, 1, 5)
        points = origin[:, None] + direction[:, None] * t[:, None]
        rgb, sigma = net(encode(points)).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.relu(sigma.squeeze(-1)) * 0.25)
        trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * trans
        return (weights[..., None] * rgb.sigmoid()).sum(1), (weights * t).sum(-1)

    return f, [(rand(4, 3), rand(4, 3, seed=1))] * 2
