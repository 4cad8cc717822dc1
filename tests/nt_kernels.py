"""neural-tangents' side of the tangent kernels of programs: `python
tests/nt_kernels.py` writes tests/data/ntk.npz, which tests/training/test_programs.py
reads. It needs jax and neural-tangents, and nothing of this package.

Fourteen networks in NTK parametrization, on three inputs of which only the Gram
matrix matters; stored are NNGP and tangent kernels.
"""

from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
from neural_tangents import stax  # after the configuration

FILE = Path(__file__).parent / "data/ntk.npz"
Σ = np.array([[1.0, 0.5, 0.2], [0.5, 1.2, -0.3], [0.2, -0.3, 0.8]])
# Gram matrix Σ: nt divides by the number of features
X = np.linalg.cholesky(Σ) * 3**0.5


def dense(var=1.7):
    return stax.Dense(1, W_std=var**0.5, parameterization="ntk")


ACTIVATIONS = {
    "relu": stax.Relu,
    "erf": stax.Erf,
    "gelu": stax.Gelu,
    "sin": stax.Sin,
    "cos": stax.Cos,
    "absolute": stax.Abs,
    "leaky": lambda: stax.LeakyRelu(0.2),
}


def plain(phi, depth):
    layers = [layer for _ in range(depth) for layer in (dense(), ACTIVATIONS[phi]())]
    return stax.serial(*layers, dense(1.0))


def residual(phi, blocks=2):
    block = stax.serial(
        stax.FanOut(2),
        stax.parallel(stax.serial(ACTIVATIONS[phi](), dense()), stax.Identity()),
        stax.FanInSum(),
    )
    return stax.serial(dense(), *[block] * blocks, ACTIVATIONS[phi](), dense(1.0))


NETWORKS = {
    f"{phi}, depth {depth}": (plain, phi, depth)
    for phi in ACTIVATIONS
    for depth in (1, 3)
}
NETWORKS = dict(list(NETWORKS.items())[:12]) | {
    f"residual {phi}": (residual, phi, 2) for phi in ("relu", "erf")
}


def main():
    stored = {}
    for name, (build, *args) in NETWORKS.items():
        kernel = build(*args)[2](X, None, ("nngp", "ntk"))
        stored |= {
            f"{name}, nngp": np.array(kernel.nngp),
            f"{name}, ntk": np.array(kernel.ntk),
        }
    np.savez_compressed(FILE, **stored)
    print(len(NETWORKS), "networks")


if __name__ == "__main__":
    main()
