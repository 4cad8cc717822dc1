"""Cases and helpers of several test files."""

import numpy as np
from conftest import columns, least_p

from infattn_nb import Block, Transformer


def agree(pairs, level=1e-6):
    "The least p over the level: both sides of each pair (N, …), (M, …) have one law."
    return least_p(*columns(pairs)) / level


COV = (lambda A: A @ A.T / 6)(np.random.default_rng(7).standard_normal((4, 6)))


def net(*parts, cov=COV, mean=0.2, layers=2, **options):
    own = {
        k: options.pop(k)
        for k in ("norm_placement", "norm", "parallel", "skip_scale", "branch_scale")
        if k in options
    }
    return Transformer(
        cov,
        blocks=[Block(*parts, **own)] * layers,
        mean=mean,
        random_embeddings=True,
        **options,
    )
