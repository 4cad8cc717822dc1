"""Every wrong argument is answered in one sentence that names it, at the door."""
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from infattn_nb.attention import Attention, Tokens
from infattn_nb.divergence import kde_kl, kl_divergence, paired_kl, total_variation
from infattn_nb.experiments import reproduce, sweep
from infattn_nb.functions import Nonlinearity, check_cov, clip, identity, leaky_relu, relu
from infattn_nb.hierarchical import GaussianMixture, HierarchicalGaussian

T = Tokens(3, relu)
A = Attention(T, heads=2)
LOW = Attention(T, heads=2, head_width=4)
LAW = A.law(8)
NAN, INF = np.nan, np.inf

CASES = [
    (lambda: Attention(T, var_q=-1.), ValueError, "`var_q`"),
    (lambda: Attention(T, var_k=NAN), ValueError, "`var_k`"),
    (lambda: Attention(T, var_v=INF), ValueError, "`var_v`"),
    (lambda: Attention(T, var_o="1"), TypeError, "`var_o`"),
    (lambda: Attention(T, var_o=[1., 2.]), TypeError, "`var_o`"),
    (lambda: Attention(T, var_o=1j), TypeError, "`var_o`"),
    (lambda: Attention(T, heads=0), ValueError, "`heads`"),
    (lambda: Attention(T, heads=1.5), TypeError, "`heads`"),
    (lambda: Attention(T, head_width=0), ValueError, "`head_width`"),
    (lambda: Attention(T, score_scale="none"), ValueError, "`score_scale`"),
    (lambda: Attention("tokens"), TypeError, "`tokens`"),
    (lambda: Attention(T, mask="diagonal"), ValueError, "`mask`"),
    (lambda: Attention(T, mask=np.ones((3, 3))), TypeError, "`mask` must be boolean"),
    (lambda: Attention(T, mask=np.ones((2, 2), bool)), ValueError, "(3, 3)"),
    (lambda: Attention(T, mask=np.diag([True, False, True])), ValueError, "empty row 1"),
    (lambda: Attention(T, bias=np.zeros((3, 2))), ValueError, "`bias`"),
    (lambda: Attention(T, bias=np.full((3, 3), -INF)), ValueError, "`mask`"),
    (lambda: Attention(T, weights=3), TypeError, "`weights`"),
    (lambda: Attention(T, weights=lambda x: x.sum(-1)), ValueError, "`weights` must keep the shape"),
    (lambda: Tokens(0, relu), ValueError, "`seq_len`"),
    (lambda: Tokens(2.5, relu), TypeError, "`seq_len`"),
    (lambda: Tokens(3, "relu"), TypeError, "`fn` must be a function"),
    (lambda: Tokens(3, np.log), ValueError, "`fn`"),
    (lambda: Tokens(3, np.sum), ValueError, "`fn`"),
    (lambda: Tokens(2, relu, [[1, 2], [2, 1]]), ValueError, "positive semidefinite"),
    (lambda: Tokens(2, relu, [[1, .5], [0, 1]]), ValueError, "symmetric"),
    (lambda: Tokens(2, relu, [[1, NAN], [NAN, 1]]), ValueError, "finite"),
    (lambda: Tokens(2, relu, np.eye(3)), ValueError, "(2, 2)"),
    (lambda: Tokens(2, relu, [1, 1]), ValueError, "square"),
    (lambda: Tokens(2, relu, [["a", "b"], ["c", "d"]]), TypeError, "real numbers"),
    (lambda: check_cov(np.diag([1, -1e-10])), ValueError, "smallest eigenvalue"),
    (lambda: A.law(0), ValueError, "`width`"),
    (lambda: A.law(2.5), ValueError, "`width`"),
    (lambda: A.law(NAN), ValueError, "`width`"),
    (lambda: A.law(-INF), ValueError, "`width`"),
    (lambda: A.law("wide"), TypeError, "`width`"),
    (lambda: A.law(None), TypeError, "`width`"),
    (lambda: LOW.law(9), ValueError, "heads·head_width = 8"),
    (lambda: LOW.scores(9), ValueError, "heads·head_width = 8"),
    (lambda: LOW.simulate_dense(9), ValueError, "heads·head_width = 8"),
    (lambda: A.simulate_dense(INF), ValueError, "finite"),
    (lambda: T.gram(0, 3), ValueError, "`width`"),
    (lambda: LAW.rvs(-1), ValueError, "`size`"),
    (lambda: LAW.rvs(1.5), TypeError, "`size`"),
    (lambda: LAW.rvs((2, -3)), ValueError, "`size`"),
    (lambda: LAW.rvs("ten"), TypeError, "`size`"),
    (lambda: LAW.covariances(None), TypeError, "`size`"),
    (lambda: LAW.rvs(2, rng="seed"), TypeError, "`rng`"),
    (lambda: LAW.rvs(2, rng=1.5), TypeError, "`rng`"),
    (lambda: LAW.rvs(2, rng=-1), ValueError, "`rng`"),
    (lambda: LAW.rvs(2, rng=True), TypeError, "`rng`"),
    (lambda: LAW.rvs(2, rng=np.random.RandomState(0)), TypeError, "`rng`"),
    (lambda: LAW.rvs(2, rng=np.random.Generator(np.random.PCG64(_NoSpawn()))), TypeError, "spawn"),
    (lambda: LAW.marginal(3), ValueError, "`i`"),
    (lambda: LAW.marginal(-1), ValueError, "`i`"),
    (lambda: LAW.marginal(0, draws=3), ValueError, "`draws`"),
    (lambda: LAW.conditional(np.ones((2, 3))), ValueError, "`S`"),
    (lambda: HierarchicalGaussian.constant([[1, 2], [2, 1]]), ValueError, "positive semidefinite"),
    (lambda: HierarchicalGaussian(lambda n, g: np.ones((n, 2)), 2).rvs(3), ValueError, "`sample(3, rng)`"),
    (lambda: GaussianMixture([1., -1.]), ValueError, "`variances`"),
    (lambda: GaussianMixture([]), ValueError, "`variances`"),
    (lambda: GaussianMixture([NAN]), ValueError, "`variances`"),
    (lambda: clip(0.), ValueError, "`C`"),
    (lambda: clip("1"), ValueError, "`C`"),
    (lambda: leaky_relu(NAN), ValueError, "`slope`"),
    (lambda: Nonlinearity(None), TypeError, "`fn`"),
    (lambda: identity.dual(np.ones(3)), ValueError, "`cov`"),
    (lambda: kl_divergence(1, LAW.marginal(0, 16)), TypeError, "`p`"),
    (lambda: kl_divergence(LAW.marginal(0, 16), LAW), TypeError, "`q`"),
    (lambda: total_variation(LAW, LAW), TypeError, "`p`"),
    (lambda: paired_kl(LAW, 8), TypeError, "`attention`"),
    (lambda: paired_kl(A, 2.5), ValueError, "`width`"),
    (lambda: paired_kl(A, 8, i=3), ValueError, "`i`"),
    (lambda: paired_kl(Attention(T, var_v=0.), 8), ValueError, "density"),
    (lambda: paired_kl(A, 8, draws=3), ValueError, "`draws`"),
    (lambda: paired_kl(A, 8, limit=LAW), TypeError, "`limit`"),
    (lambda: paired_kl(A, 8, limit=Attention(Tokens(A.tokens.seq_len + 1, relu))), ValueError, "`limit`"),
    (lambda: kde_kl([1., 1.], [1., 2.]), ValueError, "`samples_p`"),
    (lambda: kde_kl([1., 2.], [[1., 2.]]), ValueError, "`samples_q`"),
    (lambda: kde_kl([1., 2.], [1., NAN]), ValueError, "`samples_q`"),
    (lambda: sweep("fig9"), ValueError, "'fig9'"),
    (lambda: sweep("fig1b", trials=0), ValueError, "`trials`"),
    (lambda: sweep("fig1b", samples=0), ValueError, "`samples`"),
    (lambda: reproduce(only=3), TypeError, "`only`"),
    (lambda: LAW.marginal(1.), TypeError, "`i`"),
    (lambda: LAW.marginal(0, draws=1e4), TypeError, "`draws`"),
    (lambda: A.law(True), TypeError, "`width`"),
    (lambda: Attention(T, var_q=1e300, var_k=1e300), ValueError, "overflow"),
    (lambda: Attention(T, weights=lambda x: np.full(x.shape, NAN)), ValueError, "finite"),
    (lambda: Nonlinearity(lambda x: np.where(abs(x) > 4, NAN, x)).dual(np.eye(2)), ValueError, "`fn`"),
    (lambda: HierarchicalGaussian(lambda n, g: np.full((n, 1, 1), NAN), 1).rvs(2), ValueError, "`sample(2, rng)`"),
    (lambda: HierarchicalGaussian(lambda n, g: np.full((n, 1, 1), -1.), 1).rvs(2), ValueError, "negative variance"),
    (lambda: HierarchicalGaussian.constant(np.ones((3, 1, 1))), ValueError, "`cov`"),
    (lambda: GaussianMixture([1., 2.], [3., 3.]), ValueError, "`weights`"),
    (lambda: GaussianMixture([1., 2.], [1.]), ValueError, "`weights`"),
    (lambda: GaussianMixture([1., 2.]).var(return_error=True), ValueError, "`return_error`"),
    (lambda: reproduce(only="fig9"), ValueError, "'fig9'"),
    (lambda: reproduce(only=""), ValueError, "`only`"),
    (lambda: reproduce(only="fig2a", trials=0), ValueError, "`trials`"),
    (lambda: reproduce(only="fig2a", samples=2), ValueError, "`samples`"),
    (lambda: reproduce(only="fig2a", workers=0), ValueError, "`workers`"),
    (lambda: reproduce(only="fig2a", seed=-1), ValueError, "`seed`"),
    (lambda: reproduce(only="fig2a", out="/dev/null/x"), ValueError, "`out`"),
]

class _NoSpawn(np.random.bit_generator.ISeedSequence):
    def generate_state(self, n_words, dtype=np.uint32): return np.arange(n_words, dtype=dtype)

@pytest.mark.parametrize("call, error, fragment", CASES, ids=range(len(CASES)))
def test_one_clear_sentence(call, error, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as e: call()
    message = str(e.value)
    assert fragment in message and "\n" not in message and len(message) < 250

def test_rounding_is_forgiven():
    check_cov(np.diag([1, -1e-13]))
    check_cov([[1, .5 + 1e-14], [.5, 1]])

def test_a_layer_cannot_be_changed_behind_its_back():
    cov, bias = np.eye(3), np.zeros((3, 3))
    layer = Attention(Tokens(3, relu, cov), bias=bias, mask="causal")
    cov[0, 0] = bias[0, 0] = 5.
    assert layer.tokens.cov[0, 0] == 1 and layer.bias[0, 0] == 0
    for array in (layer.tokens.cov, layer.bias, layer.mask):
        with pytest.raises(ValueError): array[0, 0] = 0

def test_input_is_not_modified():
    cov, bias = np.eye(3), np.zeros((3, 3))
    cov.flags.writeable = bias.flags.writeable = False
    Attention(Tokens(3, relu, cov), bias=bias, mask=np.tri(3, dtype=bool)).law(4).rvs(10, rng=0)

@pytest.mark.parametrize("arguments, fragment", [(["--only", "fig1a,nope"], "'nope'"), (["--out", "/dev/null"], "`out`"), (["--trials", "0"], "`trials`"), (["--samples", "3"], "`samples`")])
def test_command_says_one_sentence_and_writes_nothing(arguments, fragment, tmp_path):
    command = Path(sys.executable).with_name("infattn_figures")
    run = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1 and fragment in run.stderr and run.stderr.count("\n") == 1 and not run.stdout
    assert not list(tmp_path.iterdir())
