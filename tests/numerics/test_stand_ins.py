"""Objects that draw in place of a generator: Sobol points, mirrors, inflation."""

import numpy as np
import pytest
from numpy.random import SeedSequence, default_rng
from scipy.special import digamma
from scipy.stats import chi2, kstest, norm, qmc

from infattn_nb import Attention, Tokens
from infattn_nb.nonlinearities import identity
from infattn_nb.numerics import stand_ins
from infattn_nb.numerics.stand_ins import Inflated, InflatedScores, Mirror, Mirrored
from infattn_nb.numerics.stand_ins import NormalsOfPaths, Quasi, Streams, chisquare_pair
from infattn_nb.numerics.stand_ins import sobol_normals

NORMALS = {
    "Generator": lambda: default_rng(0),
    "Quasi": lambda: Quasi(12, 4, 0),
    "Mirror": lambda: Mirror(default_rng(0), -1),
    "Mirrored": lambda: Mirrored(default_rng(0)),
    "Inflated": lambda: Inflated(default_rng(0), 1.5),
    "NormalsOfPaths": lambda: NormalsOfPaths((2,), [SeedSequence(0)]),
}


@pytest.mark.parametrize("name", NORMALS)
def test_each_gives_normals_of_any_shape(name):
    "All that the protocol `Normals` promises."
    z = NORMALS[name]().standard_normal((2, 3, 4))
    assert z.shape == (2, 3, 4)
    assert z.dtype == float
    assert np.isfinite(z).all()


def test_every_class_with_normals_is_tested():
    found = {
        name
        for name, x in vars(stand_ins).items()
        if isinstance(x, type) and "standard_normal" in vars(x)
    }
    assert found - {"Normals"} == NORMALS.keys() - {"Generator"}


@pytest.mark.parametrize("width", [3, np.inf])
def test_a_layer_draws_from_the_streams_of_a_stand_in(width):
    "A stand-in that changes nothing keeps every byte of a draw."
    law = Attention(Tokens(4, identity), 2).law(width)
    plain = law.sample(5, default_rng(7))
    inflated = InflatedScores(default_rng(7), 1.0)
    np.testing.assert_array_equal(law.sample(5, inflated), plain)
    np.testing.assert_array_equal(inflated.weights(), 1.0)


def test_only_the_scores_are_inflated():
    drawn = InflatedScores(default_rng(7), 2.0).spawn(3)
    plain = Streams.of(default_rng(7))
    shape = (3, 5)
    np.testing.assert_array_equal(
        drawn.tokens.standard_normal(shape), plain.tokens.standard_normal(shape)
    )
    np.testing.assert_array_equal(
        drawn.normals.standard_normal(shape), 2 * plain.normals.standard_normal(shape)
    )
    np.testing.assert_array_equal(
        drawn.wisharts.standard_normal(shape), plain.wisharts.standard_normal(shape)
    )


@pytest.mark.parametrize("dim", [1, 3, 64])
def test_sobol_normals(dim):
    "Those of scipy, shrunk by 1e-10; handed out row by row."
    z = sobol_normals(dim, 256, 5)
    np.testing.assert_allclose(
        z,
        qmc.MultivariateNormalQMC(np.zeros(dim), rng=default_rng(5)).random(256).T,
        atol=1e-7,
    )
    np.testing.assert_array_equal(Quasi(dim, 256, 5).standard_normal((dim, 256)), z)
    samples_first = Quasi(dim, 256, 5, axis=0)
    np.testing.assert_array_equal(samples_first.standard_normal((256, dim)), z.T)


@pytest.mark.power("means of a variance a quarter apart")
@pytest.mark.parametrize("s", [4, 16])
def test_a_mirror_serves_short_and_long_texts(s):
    "With sign +1 it has the law of a generator: means of covariances agree."
    law = Attention(Tokens(s, identity), 2).law(40)
    v = law.sample(4000, Mirror(default_rng(0), 1))[:, 0, 0]
    w = law.sample(4000, default_rng(1))[:, 0, 0]
    assert abs(v.mean() - w.mean()) < 6 * np.hypot(v.std(), w.std()) / 4000**0.5
    assert abs(1.25 * v.mean() - w.mean()) > 6 * np.hypot(v.std(), w.std()) / 4000**0.5


@pytest.mark.power("distribution functions .02 apart")
@pytest.mark.parametrize("df", [1, 2, 3, 16, 1000])
def test_a_chi_square_and_its_image(df):
    x = chisquare_pair(df, (3, 20_000), np.random.default_rng(df))
    assert x.shape == (3, 2, 20_000)
    for sample in (x[0, 0], x[0, 1], x[2, 1]):
        assert kstest(sample, chi2(df).cdf).pvalue > 1e-7
    assert abs(np.corrcoef(x[0, 0], x[1, 0])[0, 1]) < 0.05
    logs = np.log(x)  # most sensitive to proposals that are not rejected
    off = logs.mean((0, 2)) - digamma(df / 2) - np.log(2)
    assert (abs(off) < 6 * logs.std((0, 2)) / 60_000**0.5).all()
    assert df == 1 or np.corrcoef(x[0])[0, 1] < -0.3


@pytest.mark.power("distribution functions .01 apart")
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("df", [1, 3, 16])
def test_a_mirrored_chi_square_is_one(df, sign):
    x = Mirror(np.random.default_rng(df), sign).chisquare(df, (100_000,))
    assert kstest(x, chi2(df).cdf).pvalue > 1e-7


def test_weights_of_inflated_normals_are_ratios_of_densities():
    g = Inflated(np.random.default_rng(0), 1.5)
    z = g.standard_normal((3, 5))
    expected = norm.logpdf(z) - norm.logpdf(z, scale=1.5)
    np.testing.assert_allclose(g.log_weight, expected.sum(0))
