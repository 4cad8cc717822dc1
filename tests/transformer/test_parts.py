"""What branches exchange: heads one after another, and heads of unequal variances.
Norms of heads and of all queries, and how weights change them.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import least_p
from gradient_cases import case, readout_cov
from passes_cases import drawn, ensemble, smallest, stored

from infattn_nb import Norm, Rotary, SelfAttention, Transformer
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


@pytest.mark.power("distribution functions .1 apart, of any of 30 statistics")
def test_a_norm_of_all_queries_is_none_of_each_head(seed=0):
    """Against torch's side: heads normalised one by one, in the forward pass, or in the
    backward pass alone.
    """
    name = "norm of all queries"
    c, theirs = case(name), stored(name)
    t = ensemble(c)
    alone = [
        replace(b, attention=replace(b.attention, joint_norm=False)) for b in t.blocks
    ]
    sample_of = lambda t: drawn(t, c["n"], 3000, seed, readout_cov(c["readout"]))
    assert smallest(theirs, sample_of(replace(t, blocks=alone))) < LEVEL
    right = SelfAttention._undressed
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            SelfAttention,
            "_undressed",
            lambda a, *dQ: right(replace(a, joint_norm=False), *dQ),
        )
        assert smallest(theirs, sample_of(t)) < LEVEL


def test_weight_norms():
    t = Transformer.uniform(
        np.eye(3), layers=2, heads=2, ff=2, var_q=4.0, var_o=0.0, var_2=0.5
    )
    g = t.gradients(16, 10, 0)
    fan, var = (
        dict(q=16, k=16, v=16, o=16) | {"1": 16, "2": 32},
        dict(q=4.0, k=1.0, v=1.0, o=0.0) | {"1": 1.0, "2": 0.5},
    )
    for name in g.squared_norms:
        np.testing.assert_allclose(
            g.squared_norms[name],
            var[name] / fan[name] * g.squared_weight_norms[name],
            rtol=1e-12,
        )
    # a matrix of zeros gets a gradient
    assert g.squared_norms["o"].max() == 0 < g.squared_weight_norms["o"].min()
    assert np.isinf(t.gradients(np.inf, 2, 0).squared_weight_norms["1"]).all()
