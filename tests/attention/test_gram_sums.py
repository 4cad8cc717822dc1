"Signs first and running sums have the law of the sum over every coordinate."

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from infattn_nb import Attention, Tokens
from infattn_nb.attention import gram_sums
from infattn_nb.attention.gram_sums import add_pattern, explicit_sums, nested_sums
from infattn_nb.attention.gram_sums import patterns, random_signs, signs_save
from infattn_nb.attention.gram_sums import sums_by_signs, sums_of_long_runs
from infattn_nb.attention.gram_sums import sums_of_runs
from infattn_nb.nonlinearities import absolute, leaky_relu, relu
from infattn_nb.numerics.stand_ins import Mirror, Mirrored

SIZE = 6000


def statistics(K):
    "Of one draw of a Gram matrix: entries, determinant, extreme eigenvalues."
    s, K = len(K), np.moveaxis(K, -1, 0)
    i, j = np.triu_indices(s)
    values = np.linalg.eigvalsh(K)
    return np.stack([*K[:, i, j].T, np.linalg.det(K), values[:, 0], values[:, -1]])


def explicit(s, n, seed):
    return statistics(
        explicit_sums(relu, s, n, np.ones(SIZE), np.random.default_rng(seed))
    )


def agree(one, two):
    return min(ks_2samp(a, b).pvalue for a, b in zip(one, two)) > 1e-7


# n = 256: long runs
CASES = [(2, 5), (2, 64), (2, 256), (3, 40), (4, 64), (4, 130), (5, 100), (6, 256)]


@pytest.mark.power("distribution functions .05 apart")
@pytest.mark.parametrize("s, n", CASES)
@pytest.mark.long
def test_signs_first_has_the_law_of_every_coordinate(s, n):
    assert agree(
        explicit(s, n, 1),
        statistics(sums_by_signs(s, n, SIZE, np.random.default_rng(2))),
    )


@pytest.mark.power("distribution functions .05 apart")
@pytest.mark.parametrize("s, n", [(2, (4, 20, 64)), (4, (16, 64, 256)), (6, (8, 40))])
def test_running_sums_have_the_law_at_each_width(s, n):
    for number, K in zip(n, nested_sums(relu, s, n, SIZE, np.random.default_rng(3))):
        assert agree(explicit(s, number, number), statistics(K))


@pytest.mark.power(
    "it must reject: no squares of single tokens; normals instead of half-normals; a "
    "quarter of the coordinates with another sign; runs that lose their last "
    "coordinate"
)
@pytest.mark.parametrize("wrong", ["singles", "normals", "signs", "runs"])
def test_broken_sums_are_rejected(wrong, monkeypatch):
    def broken(K, tokens, counts, rng):
        if wrong == "singles" and len(tokens) == 1:
            return
        if wrong == "runs" and len(tokens) > 1:
            counts = np.maximum(counts - 1, 0)
        add_pattern(K, tokens, counts, rng)

    def tilted(*args):
        signs, there = random_signs(*args)
        signs[0] |= args[-1].integers(
            2**64, size=signs[0].shape, dtype=np.uint64
        ) & args[-1].integers(2**64, size=signs[0].shape, dtype=np.uint64)
        return signs, there

    if wrong == "signs":
        monkeypatch.setattr(gram_sums, "random_signs", tilted)
    elif wrong == "normals":
        monkeypatch.setattr(np, "abs", lambda x, out=None: x)
    else:
        monkeypatch.setattr(gram_sums, "add_pattern", broken)
    K = sums_by_signs(3, 40, SIZE, np.random.default_rng(2))
    monkeypatch.undo()
    assert not agree(explicit(3, 40, 1), statistics(K))


@pytest.mark.power("means and covariances 1 % off")
def test_moments_are_exact():
    """E K = n K∞; Cov(K₁₁, K₁₂) and so on from the moments of a half-normal, E x =
    1/√(2π), E x² = 1/2, E x³ = √(2/π), E x⁴ = 3/2.
    """
    n, size = 192, 200_000
    K = sums_by_signs(3, n, size, np.random.default_rng(5))
    e1, e2, e3, e4 = 1 / np.sqrt(2 * np.pi), 1 / 2, np.sqrt(2 / np.pi), 3 / 2
    truth = {
        ((0, 0), (0, 0)): e4 - e2**2,
        ((0, 1), (0, 1)): e2**2 - e1**4,
        ((0, 0), (0, 1)): e3 * e1 - e2 * e1**2,
        ((0, 1), (0, 2)): e2 * e1**2 - e1**4,
        ((0, 0), (1, 1)): 0.0,
        ((0, 0), (1, 2)): 0.0,
        ((2, 2), (1, 2)): e3 * e1 - e2 * e1**2,
    }
    mean = n * Tokens(3, relu).kernel()
    assert (np.abs(K.mean(-1) - mean) < 6 * K.std(-1) / np.sqrt(size)).all()
    for (a, b), value in truth.items():
        products = (K[a] - mean[a]) * (K[b] - mean[b])
        assert abs(products.mean() - n * value) < 6 * products.std() / np.sqrt(size), (
            a,
            b,
        )


def test_two_ways_to_sum_over_runs():
    rng = np.random.default_rng(0)
    for counts in ([30, 24, 47, 1], [1], [5000, 24]):
        z = rng.standard_normal((3, sum(counts)))
        for (*pair, short), (*same, long) in zip(
            sums_of_runs(z, np.array(counts)),
            sums_of_long_runs(z, np.array(counts)),
            strict=True,
        ):
            explicit = [
                abs(z[pair[0]] * z[pair[1]])[e - c : e].sum()
                for c, e in zip(counts, np.cumsum(counts))
            ]
            assert pair == same
            np.testing.assert_allclose(short, explicit, rtol=1e-12)
            np.testing.assert_allclose(long, explicit, rtol=1e-12)
    empty = [s for *_, s in sums_of_runs(np.ones((2, 3)), np.array([0, 3, 0]))]
    np.testing.assert_array_equal(empty, [[0, 3, 0]] * 3)
    assert not np.any([s for *_, s in sums_of_runs(np.ones((2, 0)), np.array([0, 0]))])


def test_every_coordinate_has_one_pattern():
    signs, there = random_signs(4, 100, 7, np.random.default_rng(0))
    counts = [
        np.bitwise_count(where).sum(0, dtype=int) for _, where in patterns(signs, there)
    ]
    assert len(counts) == 16
    assert (sum(counts) == 100).all()


def test_running_sums_do_not_depend_on_wider_ones():
    short, long = (
        nested_sums(relu, 4, n, 100, np.random.default_rng(1))
        for n in ((16, 64), (16, 64, 256))
    )
    np.testing.assert_array_equal(short, long[:2])
    assert (np.diff(np.einsum("niik->nik", long), axis=0) >= 0).all()


@pytest.mark.parametrize("activation", [leaky_relu(0.1), absolute])
def test_other_homogeneous_functions_sum_every_coordinate(activation):
    assert not signs_save(activation, 4, 1024)
    assert signs_save(relu, 4, 1024)
    assert not signs_save(relu, 8, 4096)
    assert not signs_save(relu, 4, 63)
    n, size = (20, 60), 20_000
    K = nested_sums(activation, 2, n, size, np.random.default_rng(2))
    for number, sums in zip(n, K):
        assert (
            np.abs(sums.mean(-1) - number * Tokens(2, activation).kernel())
            < 6 * sums.std(-1) / np.sqrt(size)
        ).all()


@pytest.mark.power("distribution functions .04 apart")
def test_relu_layers_keep_their_law():
    "Width 64 takes signs first; a ReLU that is not recognised takes every coordinate."
    own = Attention(Tokens(4, lambda x: np.maximum(x, 0.0)), heads=2)
    y = [
        layer.law(64).rvs(20_000, rng=k)
        for k, layer in enumerate((own, Attention(Tokens(4, relu), heads=2)))
    ]
    for f in (
        lambda y: y[:, 0],
        lambda y: y[:, 0] * y[:, 1],
        lambda y: y.sum(1),
        lambda y: np.abs(y).max(1),
    ):
        assert ks_2samp(f(y[0]), f(y[1])).pvalue > 1e-7


def test_mirror_images_of_sums():
    "A mirrored stream turns the signs round, and keeps the law."
    K = [
        sums_by_signs(3, 40, SIZE, Mirror(np.random.default_rng(1), sign))
        for sign in (1, -1)
    ]
    assert np.corrcoef(K[0][0, 1], K[1][0, 1])[0, 1] < 0
    assert agree(explicit(3, 40, 2), statistics(K[1]))
    three = Mirrored(np.random.default_rng(0))
    np.testing.assert_array_equal(three.chisquare(9, (2, 3, 5))[:, 2], 9.0)
    assert not three.standard_normal((2, 3, 5))[:, 2].any()


@pytest.mark.power(
    "half of the coordinates positive in every draw; a spread 1.4 times as large"
)
def test_one_relu_token_costs_the_same_at_any_width():
    "Its sum of squares, in law; a width of a billion takes no time."
    rng = np.random.default_rng(5)
    size, n = 20_000, 40
    plain = explicit_sums(relu, 1, n, np.ones(size), rng)[0, 0]
    quick = sums_by_signs(1, n, size, rng)[0, 0]
    assert ks_2samp(plain, quick).pvalue > 1e-6
    fixed = 2 * rng.standard_gamma(n / 4, size)
    assert ks_2samp(plain, fixed).pvalue < 1e-6
    one, other = (
        sums_by_signs(1, n, size, Mirror(np.random.default_rng(1), sign))[0, 0]
        for sign in (1, -1)
    )
    assert np.corrcoef(one, other)[0, 1] < 0
    assert ks_2samp(plain, other).pvalue > 1e-6
    wide = 10**9
    K = Tokens(1, relu).gram(wide, 1000, rng=0)[:, 0, 0]
    z = (K - 0.5) / np.sqrt(1.25 / wide)  # E x⁴ − (E x²)² = 3/2 − 1/4
    assert kstest(z, "norm").pvalue > 1e-6
    assert kstest(z / 1.4, "norm").pvalue < 1e-6
