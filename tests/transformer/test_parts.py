"""What branches exchange: heads one after another, and heads of unequal variances."""

import numpy as np
import pytest
from conftest import least_p

from infattn_nb import Norm, Rotary, SelfAttention
from infattn_nb.numerics.linalg import square
from infattn_nb.transformer.parts import Cotangent

LEVEL = 1e-6


def branch_statistics(branch, n, seed, size=3000):
    "Of forward and backward passes through one branch, for a fixed cotangent."
    rng = np.random.default_rng(seed)
    X, C = (
        np.broadcast_to(np.random.default_rng(k).standard_normal((3, 4)), (size, 3, 4))
        for k in (1, 2)
    )
    R = np.ascontiguousarray(X) / 2
    record = branch.forward(R, n, rng, keep="all")
    dY = Cotangent(C, square(C), R, square(R), n, np.arange(3))
    drawn = branch.fresh(record, dY, rng)
    M = np.broadcast_to(0.3 * np.eye(3), (size, 3, 3))
    sizes, (pull,) = branch.backward(record, drawn, M, dY)
    parts = dict(F=record.F, T=pull.inner, Σ=pull.cov)
    parts |= {name: sizes[name] for name in "qkv"}
    return np.concatenate([x.reshape(size, -1) for x in parts.values()], axis=1)


@pytest.mark.parametrize("unequal", (False, True))
@pytest.mark.parametrize(
    "options",
    [
        dict(head_width=2),
        dict(head_width=2, groups=2, softcap=1.5),
        dict(head_width=6, groups=1),
        dict(head_width=4, rotary=Rotary(10.0), qk_norm=Norm("rms")),
        dict(head_width=np.inf),
        dict(head_width=np.inf, rotary=Rotary(10.0), qk_norm=Norm("rms"), softcap=0.5),
    ],
    ids=repr,
)
def test_heads_one_after_another(monkeypatch, options, unequal):
    "Of long texts weights are taken a head at a time: the same gradients."
    var_o = [0.5, 2.0, 3.0, 1.0] if unequal else 2.0
    branch = SelfAttention(4, var_q=3.0, var_o=var_o, **options)
    n = 16 if options["head_width"] < np.inf else np.inf
    rng = np.random.default_rng(0)
    R, C = rng.standard_normal((2, 5, 3, 4))
    record = branch.forward(R, n, rng, keep="all")
    dY = Cotangent(C, square(C), R, square(R), n, np.arange(3))
    drawn = branch.fresh(record, dY, rng)
    M = rng.standard_normal((5, 3, 3))
    sizes, (pull,) = branch.backward(record, drawn, M, dY)
    monkeypatch.setattr("infattn_nb.transformer.attention.CACHE", 1)
    apart, (pulled,) = branch.backward(record, drawn, M, dY)
    for name, size in sizes.items():
        np.testing.assert_allclose(apart[name], size, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pulled.inner, pull.inner, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(pulled.cov, pull.cov, rtol=1e-10, atol=1e-12)


@pytest.mark.power(
    "distribution functions .1 apart; heads of the mean variance are rejected"
)
@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(head_width=3),
        dict(head_width=3, groups=1),
        dict(head_width=np.inf, rotary=Rotary(10.0)),
    ],
    ids=repr,
)
def test_heads_of_unequal_variances(options, seed=0):
    "A head of variance zero is not there: two heads of 0 and 3 are one of 3/2."
    n = 16 if "head_width" in options and options["head_width"] < np.inf else np.inf
    branch, equal = (
        SelfAttention(2, var_q=3.0, var_o=v, **options) for v in ([0.0, 3.0], 1.5)
    )
    alone = branch_statistics(
        SelfAttention(1, var_q=3.0, var_o=1.5, **options), n, seed
    )
    assert least_p(branch_statistics(branch, n, seed + 1), alone) > LEVEL
    assert least_p(branch_statistics(equal, n, seed + 2), alone) < LEVEL
