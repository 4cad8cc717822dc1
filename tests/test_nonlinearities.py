"Dual activations against integrals, and as covariances."

import pickle
from functools import lru_cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from public import PUBLIC

from infattn_nb import Nonlinearity, nonlinearities
from infattn_nb.nonlinearities import SLOPE_DUALS, absolute, clip, cos, erf, gelu
from infattn_nb.nonlinearities import gelu_tanh, identity, leaky_relu, quadratic, relu
from infattn_nb.nonlinearities import sigmoid, silu, sin, softmax, softplus, step, tanh
from infattn_nb.numerics.hermite import dual_quadrature
from infattn_nb.theory import compose, product

READY = [
    identity,
    relu,
    leaky_relu(0.3),
    clip(0.01),
    clip(1.0),
    clip(100.0),
    erf,
    tanh,
    sigmoid,
    gelu,
    gelu_tanh,
    silu,
    softplus,
    sin,
    cos,
    absolute,
    quadratic,
    step,
]
every = pytest.mark.parametrize("φ", READY, ids=repr)


@lru_cache(8)
def plane(C, a, b, ρ):
    """Points u, v and weights of nested Gauss–Legendre panels, fine near kinks at 0 and
    ±C; U = √a x, V = √b (ρ x + √(1−ρ²) y).
    """
    t, w = np.polynomial.legendre.leggauss(16)
    graded = np.geomspace(0.01, 3, 5)

    def panels(kinks):
        rows = kinks.shape[:-1]
        near = (kinks[..., None] + np.r_[-graded, 0, graded]).reshape(*rows, -1)
        edges = np.concatenate(
            [near, np.broadcast_to(np.linspace(-9, 9, 19), (*rows, 19))], axis=-1
        )
        edges = np.sort(np.clip(edges, -9, 9))[..., None]
        h = np.diff(edges, axis=-2) / 2
        x = edges[..., :-1, :] + h * (t + 1)
        return x.reshape(*rows, -1), (
            h * w * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
        ).reshape(*rows, -1)

    kinks = lambda sd: np.r_[0, C, -C] / max(sd, 1e-30)
    x, wx = panels(np.r_[kinks(a**0.5), kinks(b**0.5 * abs(ρ))])
    x, wx = (z[wx > 1e-17, None] for z in (x, wx))
    s = np.sqrt((1 - ρ) * (1 + ρ))
    if s * b == 0:
        return a**0.5 * x, b**0.5 * ρ * x, wx
    y, wy = panels((np.r_[0, C, -C] / b**0.5 - ρ * x) / s)
    return a**0.5 * x, b**0.5 * (ρ * x + s * y), wx * wy


def reference(φ, a, b, ρ):
    "E φ(U)φ(V)."
    C = φ.fn.keywords.get("C", 1.0) if hasattr(φ.fn, "keywords") else 1.0
    u, v, w = plane(C, a, b, ρ)
    return (φ(u) * φ(v) * w).sum()


@every
def test_answers_are_arrays_of_doubles(φ):
    "Lists, integers and float32 alike; numbers give numbers."
    for x in ([1, 2], np.array([1, 2]), np.array([1, 2], np.float32), (1.0, 2.0)):
        y = φ(x)
        assert type(y) is np.ndarray
        assert y.dtype == float
        assert (y == φ(np.array([1.0, 2.0]))).all()
    assert type(φ(2)) is np.float64
    assert softmax(np.ones(2, np.float32)).dtype == float


@every
@pytest.mark.long
def test_against_integration(φ):
    for a, b, ρ in (
        (1.0, 1.0, 0.3),
        (1.0, 1.0, 0.999),
        (0.01, 100.0, -0.7),
        (1e-8, 1.0, 0.3),
        (100.0, 100.0, -1.0),
        (100.0, 100.0, 0.999),
        (0.0, 1.0, 0.3),
        (100.0, 1.0, 1.0),
    ):
        c = ρ * np.sqrt(a) * np.sqrt(b)
        D = np.sqrt(φ.closed_form(a, a, a) * φ.closed_form(b, b, b))
        assert (
            abs(φ.closed_form(a, b, c) - reference(φ, a, b, ρ)) <= 1e-8 * D + 1e-15
        ), (a, b, ρ)


correlations = st.one_of(
    st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 0.0, 1 - 1e-15, -1 + 1e-12])
)


@every
@settings(max_examples=20, deadline=None)
@given(a=st.floats(1e-8, 1e2), b=st.floats(1e-8, 1e2), ρ=correlations)
@pytest.mark.long
def test_dual_is_a_covariance(φ, a, b, ρ):
    "Symmetric, Cauchy–Schwarz, diagonal ≥ 0; φ(0)² for no variance."
    c = ρ * np.sqrt(a) * np.sqrt(b)
    K = φ.dual([[a, c], [c, b]])
    assert K[0, 1] == K[1, 0]
    assert K[0, 0] >= 0
    assert K[1, 1] >= 0
    assert abs(K[0, 1]) <= np.sqrt(K[0, 0] * K[1, 1]) * (1 + 1e-8) + 1e-300
    np.testing.assert_allclose(
        φ.closed_form(b, a, c),
        K[0, 1],
        rtol=1e-8,
        atol=1e-9 * np.sqrt(K[0, 0] * K[1, 1]),
    )
    np.testing.assert_allclose(φ.dual([[0.0, 0.0], [0.0, 0.0]]), φ(0.0) ** 2, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    s=st.integers(1, 6),
    rank=st.integers(1, 6),
    scale=st.sampled_from([1e-8, 1e-4, 1.0, 100.0]),
    seed=st.integers(0, 10**6),
)
@pytest.mark.long
def test_kernels_are_positive(s, rank, scale, seed):
    G = np.random.default_rng(seed).normal(size=(s, rank))
    for φ in READY:
        K = φ.dual(scale * G @ G.T)
        assert np.isfinite(K).all(), φ
        assert np.linalg.eigvalsh(K).min() >= -3e-8 * np.trace(K), φ


@pytest.mark.power(
    "a pair among 200,000; constants 1 % smaller break (test_the_search_can_bite)"
)
@every
def test_bound_and_constants_hold(φ, size=2 * 10**5):
    """|φ(x) − φ(y)| ≤ C(1 + |x|^{d−1} + |y|^{d−1})|x − y| on many pairs, near and far,
    with near equality for some."""
    rng = np.random.default_rng(0)
    x = rng.standard_cauchy(size) * 10
    y = x + rng.standard_cauchy(size) * 10.0 ** rng.uniform(-3, 2, size)
    assert (np.abs(φ(x)) <= φ.bound).all()
    if φ.order is None:
        return
    right = (
        φ.constant
        * (1 + np.abs(x) ** (φ.order - 1) + np.abs(y) ** (φ.order - 1))
        * np.abs(x - y)
    )
    left = np.abs(φ(x) - φ(y))
    assert (
        left <= right * (1 + 1e-12) + 1e-12 * (1 + np.abs(φ(x)) + np.abs(φ(y)))
    ).all()
    assert (left[right > 1e-3] / right[right > 1e-3]).max() > 0.99, "C is too large"


def test_own_function_with_error():
    for fn, exact in ((np.tanh, tanh), (relu.fn, relu), (np.sin, sin)):
        Σ = np.array([[[2.0, 0.5], [0.5, 1]], [[1, -1], [-1, 1]], [[0, 0], [0, 3]]])
        K, error = Nonlinearity(fn).dual(Σ, return_error=True)
        assert (np.abs(K - exact.dual(Σ)) <= 4 * error + 1e-11).all()


def test_batches_and_pickling():
    Σ = np.stack([np.eye(3), np.ones((3, 3))])
    for φ in READY:
        assert φ.dual(Σ).shape == (2, 3, 3)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(φ)).dual(Σ), φ.dual(Σ))


def test_softmax_extremes():
    assert (softmax(np.array([-1e300, 1e300])) == [0, 1]).all()
    np.testing.assert_array_equal(softmax(np.zeros((2, 3)), axis=0), 0.5)
    x = np.array([1.0, 2.0])
    softmax(x)
    np.testing.assert_array_equal(x, [1, 2])


def test_equal_parameters_make_equal_functions():
    ramp = lambda top: Nonlinearity(
        partial(np.interp, xp=np.array([-1.0, 1.0]), fp=np.array([0.0, top]))
    )
    assert ramp(1.0) == ramp(1.0) != ramp(2.0)
    assert len({ramp(1.0), ramp(1.0), ramp(2.0)}) == 2
    assert (
        compose(tanh, clip(1.0)) == compose(tanh, clip(1.0)) != compose(tanh, clip(2.0))
    )
    assert hash(compose(tanh, clip(1.0))) == hash(compose(tanh, clip(1.0)))
    assert (
        product(clip(1.0), tanh) == product(clip(1.0), tanh) != product(tanh, clip(1.0))
    )
    # callable, but without a hash of its own
    polynomial = Nonlinearity(np.polynomial.Polynomial([0.0, 1.0]))
    assert polynomial == polynomial
    assert hash(polynomial) == hash(polynomial)


# away from the kinks of all of them
SMOOTH_POINTS = np.array([-3.1, -1.7, -0.4, 0.3, 1.1, 2.9])
DIFFERENTIABLE = {
    name: x
    for name, x in PUBLIC.items()
    if isinstance(x, Nonlinearity) and x.arity == 1 and x is not step
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_against_differences(name, h=1e-5):
    φ, x = DIFFERENTIABLE[name], SMOOTH_POINTS
    np.testing.assert_allclose(
        φ.derivative(x), (φ(x + h) - φ(x - h)) / (2 * h), rtol=1e-8, atol=1e-8
    )


def test_a_wrong_derivative_is_seen():
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            np.cosh(SMOOTH_POINTS) ** -1,
            (np.tanh(SMOOTH_POINTS + 1e-5) - np.tanh(SMOOTH_POINTS - 1e-5)) / 2e-5,
            rtol=1e-8,
            atol=1e-8,
        )


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "silu"])
def test_duals_by_a_mixture_state_an_error(name):
    "They stated 0 and are good to some 6e-12."
    φ = getattr(nonlinearities, name)
    K, error = φ.dual([[1.0, 0.5], [0.5, 2.0]], return_error=True)
    assert (error > 0).all()
    assert (error < 2e-11 * K.max()).all()
    g = 0.03 * np.arange(-400, 401)
    x, y = np.meshgrid(g, g)
    w = np.exp(-(x * x + y * y) / 2) * 0.03**2 / (2 * np.pi)
    exact = (w * φ(x) * φ(0.5 * x + np.sqrt(1.75) * y)).sum()
    assert abs(K[0, 1] - exact) < error[0, 1]


def test_gelu_tanh_to_the_last_digits():
    "Against extended precision, relative in the lower tail too."
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no extended precision here")
    x = np.linspace(-8, 8, 4001)
    wide = x.astype(np.longdouble)
    c = np.sqrt(8 / np.longdouble("3.14159265358979323846264338"))
    slope = np.longdouble("0.044715")
    u = c * (wide + slope * wide**3)
    share, rest = 1 / (1 + np.exp(-u)), 1 / (1 + np.exp(u))
    value = wide * share
    derivative = share + wide * share * rest * c * (1 + 3 * slope * wide**2)
    # rounding of the exponent, of |u| ulps, is what is left of an error
    ulps = np.finfo(float).eps * (4 + 2 * np.abs(u))
    assert (np.abs(gelu_tanh.fn(x) - value) <= ulps * np.abs(value)).all()
    assert (np.abs(gelu_tanh.derivative(x) - derivative) <= ulps).all()
    by_tanh = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    assert not (np.abs(by_tanh - value) <= ulps * np.abs(value)).all()


def test_equal_functions_stay_equal_when_sent_to_another_process():
    "Keys are made once, and never sent: they may hold an id that means nothing there."
    clip = nonlinearities.clip(1.0)
    assert clip == nonlinearities.clip(1.0) != nonlinearities.clip(2.0)
    assert "_key" in vars(clip)
    again = pickle.loads(pickle.dumps(clip))
    assert "_key" not in vars(again)
    assert again == clip
    assert hash(again) == hash(clip)


@pytest.mark.parametrize("θ", [0.0, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 3.0, np.pi])
@pytest.mark.parametrize("v", [1e-6, 0.3, 7.0])
def test_duals_near_equal_inputs(θ, v):
    """By the angle θ between them, on which the arc-cosine kernels depend smoothly
    (Cho and Saul, 2009); the second input has the size 2.
    """
    c = 2 * v * np.cos(θ)
    near = lambda found, exact: np.testing.assert_allclose(
        found, exact, rtol=1e-13, atol=4e-8 * v * min(θ, 1e-3) + 1e-15 * v
    )
    of = lambda φ: φ.dual([[v, c], [c, 4 * v]])[0, 1]
    half = np.sin(θ) + (np.pi - θ) * np.cos(θ)
    near(of(relu), 2 * v * half / (2 * np.pi))
    both = half + np.sin(θ) - θ * np.cos(θ)
    near(of(absolute), 2 * v * both / np.pi)
    assert abs(of(step) - (np.pi - θ) / (2 * np.pi)) < 2e-8


@pytest.mark.parametrize("slope", SLOPE_DUALS, ids=lambda f: f.__name__)
def test_duals_of_derivatives(slope):
    "Closed forms against the quadrature, which a wrong term fails."
    a, b, r = (
        np.ravel(x) for x in np.meshgrid([0.3, 1.0], [0.7, 2.0], [-0.9, 0.0, 0.5])
    )
    c = r * np.sqrt(a * b)
    value, _ = dual_quadrature(slope, a, b, c)
    np.testing.assert_allclose(SLOPE_DUALS[slope](a, b, c), value, atol=1e-11, rtol=0)
    assert not np.allclose(SLOPE_DUALS[slope](a, b, 0.5 * c), value, atol=1e-3)


@pytest.mark.parametrize("φ", [gelu, gelu_tanh, silu, tanh], ids=str)
def test_slopes_far_out(φ):
    x = np.array([1.0, 30.0, 1e3, 1e100])
    slopes = φ.derivative(np.r_[-x, x])
    right = 0.0 if φ is tanh else 1.0
    np.testing.assert_allclose(slopes[1:4], 0, atol=1e-11)
    np.testing.assert_allclose(slopes[5:], right, atol=1e-11)
