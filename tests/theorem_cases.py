"""Cases and helpers of several test files."""

import numpy as np

from infattn_nb import Attention, Tokens
from infattn_nb.nonlinearities import clip

LAYER = Attention(Tokens(3, clip(100.0)), heads=1, var_q=4.0)
F, DF = lambda x: np.sin(3 * x), lambda x: 3 * np.cos(3 * x)
Σ = np.array([[1.0, 0.5], [0.5, 4.0]])
