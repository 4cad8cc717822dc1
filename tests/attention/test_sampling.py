"""Both ways to draw the matrices of a layer give one law."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import ks_2samp

from infattn_nb import Attention, CommonTokens, Tokens
from infattn_nb.attention import sampling as recipe
from infattn_nb.attention.sampling import sample_outputs
from infattn_nb.nonlinearities import identity, relu


@pytest.mark.power("distribution functions .046 apart")
@pytest.mark.parametrize("heads, m", [(1, "full"), (3, "full"), (3, 5)])
@pytest.mark.long
def test_both_orders_of_the_axes_have_one_limit(heads, m, monkeypatch, size=10_000):
    layer = Attention(CommonTokens(16, relu), heads, m, var_q=4.0, mask="causal")
    first = layer.law().covariances(size, rng=0)
    monkeypatch.setattr(recipe, "SHORT", 16)
    last = layer.law().covariances(size, rng=1)
    for i, j in ((15, 15), (15, 14), (3, 3)):
        p = ks_2samp(first[:, i, j], last[:, i, j], method="asymp").pvalue
        assert p > 1e-9, (i, j)


def test_few_tokens_and_many_heads_go_through_S():
    "The faster way; the law is the same."
    for s, H, through_S in (
        (2, 16, True),
        (1, 64, True),
        (2, 15, False),
        (3, 16, False),
    ):
        assert (
            Attention(Tokens(s, identity), heads=H).law().direct is None
        ) == through_S
    layer = Attention(Tokens(2, identity), heads=16)
    law = layer.law()
    assert law.direct is None
    assert layer.law(64).direct is not None
    direct = replace(law, direct=partial(sample_outputs, layer, layer.tokens, np.inf))
    a, b = law.rvs(20_000, rng=1), direct.rvs(20_000, rng=2)
    error = (np.var(a[:, 0] ** 2) / 20_000 + np.var(b[:, 0] ** 2) / 20_000) ** 0.5
    assert abs((a[:, 0] ** 2).mean() - (b[:, 0] ** 2).mean()) < 6 * error
