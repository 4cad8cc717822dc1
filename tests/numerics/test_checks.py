"""What counts as rounding is forgiven, and nothing else."""

import numpy as np

from infattn_nb import *
from infattn_nb.convergence import *
from infattn_nb.netsor import *
from infattn_nb.nonlinearities import *
from infattn_nb.numerics import *
from infattn_nb.numerics import checks
from infattn_nb.paper import *
from infattn_nb.theory import *


def test_rounding_is_forgiven():
    checks.cov(np.diag([1, -1e-13]))
    checks.cov([[1, 0.5 + 1e-14], [0.5, 1]])
