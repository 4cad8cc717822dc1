"""Programs there and back, trained: the same as explicit matrices from the same start, and in law.

Samples of N networks each are compared by Kolmogorov–Smirnov tests; the smallest p-value of k statistics times k must exceed 1e-8 (a false alarm below
1e-6 in all): distribution functions .073 apart are seen with 8,000 networks, .046 with 20,000 (`least_p` of conftest.py)."""
import warnings
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest

from conftest import columns, least_p, nightly
from infattn_nb import (AttentionDescent, Block, FeedForward, Nonlinearity, Norm, Program, SelfAttention, Transformer, attention, erf, gelu, gradients,
                        identity, limit, mlp, relu, simulate, sin, tanh, times, train)
from infattn_nb.programs.revealed import Revealed, State
from infattn_nb.programs import training
from program_cases import HOW, PROGRAMS, STEPS, WIDTH, Y, Σ, written

pytestmark = pytest.mark.filterwarnings("ignore::infattn_nb.programs.nodes.AssumptionWarning")
STORED = np.load(Path(__file__).parent/"data/programs.npz")
quiet = partial(train, verbose=False)

# -- exactness

@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_path_is_that_of_torch(name, how):
    "From one explicit start, twenty steps: torch's autograd, explicit matrices, revealed ones."
    truth = STORED[f"{name}, {how}"]
    assert abs(truth[-1] - truth[0]).max() > .3 # it moved
    for dense in (True, False):
        p, fs, start = written(name)
        found = quiet(p, fs, Y, width=WIDTH, steps=STEPS, start=start, networks=1, rng=0, dense=dense, **HOW[how]).outputs[0]
        there = ~np.isnan(found)
        assert there[-1].all() and there.any(1).all()
        np.testing.assert_allclose(found[there], truth[there], rtol=0, atol=1e-9)

def test_it_notices_a_wrong_rate_of_one_matrix():
    p, fs, start = written("two blocks")
    found = quiet(p, fs, Y, width=WIDTH, steps=STEPS, start=start, networks=1, rng=0, rates={"M": 1.001}, **HOW["plain"]).outputs[0]
    assert 1e-7 < abs(found - STORED["two blocks, plain"]).max() < .1

def test_crowded_matrices_become_explicit_on_the_way():
    "The rule of size switches in the run; the path stays."
    p, fs, start = written("two blocks")
    run = quiet(p, fs, Y, width=WIDTH, steps=STEPS, start=start, networks=1, rng=0, **HOW["momentum and decay"])
    kinds = {type(M).__name__ for networks, _ in run._blocks for M in networks.matrices.values()}
    assert "Explicit" in kinds
    np.testing.assert_allclose(run.outputs[0], STORED["two blocks, momentum and decay"], rtol=0, atol=1e-9)

# -- law

def trained(name, n, size, dense, rng, steps=3, **how):
    "Outputs and losses of three steps, tangent kernels at both ends, the motion of a vector."
    p = Program()
    fs = PROGRAMS[name](p)
    scores = [h for h in p.past(*fs) if type(h).__name__ == "Score"][:4]
    run = quiet(p, fs, Y, width=n, steps=steps, networks=size, rng=rng, dense=dense, watch=scores, **dict(rate=.1) | how)
    yield run.outputs
    yield np.sort(run.loss, axis=1)
    yield run.watched
    yield run.outputs[:, -1]*run.outputs[:, 0]
    yield run.tangent("start")
    yield run.tangent("end")
    yield run.change(fs[-1].args[0])

@lru_cache(2)
def literal(name, n, size): return list(trained(name, n, size, True, 0))

@pytest.mark.power("distribution functions .073 apart with 8,000 networks, .046 with 20,000")
@pytest.mark.parametrize("name, n, size", nightly(
    [("two blocks", 12, 8_000), ("gated product", 12, 8_000), *((name, n, 20_000) for name in PROGRAMS for n in (12, 32, 96))],
    *((name, n, 20_000) for name in PROGRAMS for n in (12, 32, 96))))
def test_the_law_is_that_of_literal_networks(name, n, size):
    "At n = 12 more directions are met than there are coordinates."
    ours = trained(name, n, size, False, 1)
    assert least_p(*columns(zip(literal(name, n, size), ours, strict=True))) > 1e-8

def fresh_matrix(self, E, other, forward): return self.sd*self.rng.standard_normal((*E.shape[:2], other.rows.shape[2]))

def old_images(self, X, state): # what was added is not seen by new products
    a = self._meet(X, self.right, self.left)
    return state.kept*a @ self.right.images, a

BROKEN = {"a fresh matrix for the way back": dict(_images=fresh_matrix), "updates that forget the images": dict(times=old_images), "half the rate": dict()}

@pytest.mark.power("broken variants at p < 1e-12")
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_variants_are_rejected(fault, monkeypatch, size=8_000):
    for method, f in BROKEN[fault].items(): monkeypatch.setattr(Revealed, method, f)
    ours = trained("two blocks", 12, size, False, 1, rate=.05 if fault == "half the rate" else .1)
    assert least_p(*columns(zip(literal("two blocks", 12, size), ours, strict=True))) < 1e-12

# -- other routes

@pytest.mark.power("distribution functions .1 apart with 4,000 networks")
@pytest.mark.parametrize("norm, final", [("pre", True), (None, False)])
def test_gradients_are_those_of_the_chain(norm, final, size=4_000):
    "Whole transformers: ★ the chain of Gram matrices and the program, at one finite width."
    net = Transformer.uniform(np.eye(4) + .3, layers=2, heads=2, norm=norm, activation=tanh, final_norm=final, mask="causal", texts="aabb", var_q=2.,
                              ff=2, random_embeddings=True)
    p, fs = net.program()
    ours = gradients(p, fs, width=24, size=size, rng=0)
    chain = net.gradients(24, size, 1)
    matrix = lambda letter: sum(Θ for name, Θ in ours.by_matrix.items() if name.startswith(letter))
    theirs = {name: chain.weight_norms[name].sum(-1) for name in chain.weight_norms}
    pairs = [(np.einsum("bii->b", ours.tangent - ours.by_matrix["R1"]), np.einsum("bii->b", chain.tangent)),
             (ours.tangent[:, 0, 1] - ours.by_matrix["R1"][:, 0, 1], chain.tangent[:, 0, 1])]
    assert set(theirs) == set("qkvo12") and matrix("Q").shape == (size, 2, 2)
    assert least_p(*columns(pairs)) > 1e-8

@pytest.mark.power("distribution functions .1 apart with 4,000 networks; half the rate at p < 1e-12")
@pytest.mark.parametrize("factor", [1., .5])
def test_one_layer_trains_as_its_recursion(factor, size=4_000, m=4, n=8):
    "AttentionDescent at finite head width, step by step."
    d, s, P, steps, rate = 3, 3, 2, 6, .05
    X = np.random.default_rng(0).standard_normal((P, s, d))
    y = np.array([1., -1.])
    model = AttentionDescent(1, 1.5, .8, width=m, rate=rate, steps=steps, networks=size, random_state=0, tol=0., mask="causal").fit(X, y)
    p = Program()
    tokens = [p.inputs(np.eye(s)) for _ in range(P)]
    Q, K, V = (p.matrix(k, var, rows=m/n) for k, var in (("Q", 1.5), ("K", 1.), ("V", .8)))
    R = p.readout()
    fs = [R @ p.attend([p.score(Q @ x[-1], K @ z) for z in x], [V @ z for z in x]) for x in tokens]
    start = {z: np.sqrt(n)*np.pad(X[i, j], (0, n - d)) for i, x in enumerate(tokens) for j, z in enumerate(x)}
    for dense in (None, False)[:1 + (factor == 1)]:
        ours = quiet(p, fs, y, width=n, rate=factor*rate, steps=steps, networks=size, rng=1, start=start, dense=dense)
        p_value = least_p(*columns([(model.loss_, ours.loss), (model.values(X), ours.outputs[:, -1])]))
        assert p_value > 1e-8 if factor == 1 else p_value < 1e-12

@pytest.mark.power("distribution functions .33 apart with 150 networks, by night .2; half the rate at p < 1e-7")
@pytest.mark.parametrize("n, size", nightly([(1024, 150), (8192, 400)], (8192, 400)))
def test_a_wide_attention_only_network_trains_as_its_circuits(n, size):
    d, s, P, steps, rate = 3, 3, 2, 10, .05
    X = np.random.default_rng(0).standard_normal((P, s, d))
    y = np.array([1.5, -1.])
    model = AttentionDescent(1, 1., .7, layers=2, rate=rate, steps=steps, networks=4_000, random_state=0, tol=0., mask="causal").fit(X, y)
    p = Program()
    e = p.inputs(np.eye(d))
    R = p.readout()
    start = dict(zip(e, np.sqrt(n)*np.eye(d, n)))
    layers = [[p.matrix(f"{k}{l}", .7 if k == "V" else 1.) for k in "QKVO"] for l in range(2)]
    fs = []
    for text in X:
        x = [sum(float(c)*h for c, h in zip(row, e)) for row in text]
        for Q, K, V, O in layers:
            x = [h + O @ p.attend([p.score(Q @ h, K @ z) for z in x[:i + 1]], [V @ z for z in x[:i + 1]]) for i, h in enumerate(x)]
        fs.append(R @ x[-1])
    ours = quiet(p, fs, y, width=n, rate=rate, steps=steps, networks=size, rng=1, start=start)
    compared = [(model.loss_, ours.loss), (model.values(X), ours.outputs[:, -1])]
    assert least_p(*columns(compared)) > 1e-8
    slow = quiet(p, fs, y, width=n, rate=rate/2, steps=steps, networks=size, rng=1, start=start)
    assert least_p(*columns([(model.loss_, slow.loss), (model.values(X), slow.outputs[:, -1])])) < 1e-7
