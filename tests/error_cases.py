"""Cases and helpers of several test files."""

import numpy as np
from scipy.integrate import quad
from scipy.stats import norm


def steep_moment():
    "E tanh(30U)tanh(30V) at a correlation of .999, by nested quadrature."
    x, w = np.polynomial.hermite_e.hermegauss(200)
    w = w / w.sum()
    σ = np.sqrt(1 - 0.999**2)

    def inner(u):
        return np.tanh(30 * u) * (w @ np.tanh(30 * (0.999 * u + σ * x))) * norm.pdf(u)

    return 2 * quad(inner, 0, 12, points=[0.02, 0.1, 0.5], limit=400, epsabs=1e-10)[0]
