"""A layer and an MLP trained at infinite width, against explicit networks, networks
that the package trains, and averages over draws.

A Kolmogorov–Smirnov distance between networks of width n and the limit may be 1.5/√n
(the rate measured on the page) and what chance allows at 1e-8 over all statistics.
"""

import numpy as np
import pytest
from scipy.special import kolmogi
from scipy.stats import ks_2samp, kstest

from infattn_nb import train
from infattn_nb.nonlinearities import quadratic, slope, tanh
from infattn_nb.numerics.softmax import softmax
from infattn_nb.theory import attention_mlp, trained_limit
from infattn_nb.theory.trained_layer import Family, averages_of, new_values

K = np.array([[1.0, 0.3], [0.3, 1.5]])
K3 = np.array([[1.0, 0.3, -0.2], [0.3, 1.5, 0.4], [-0.2, 0.4, 1.2]])
RATE, TARGET, VAR = 0.25, 1.5, dict(var_q=3.0, var_k=3.0)


def allowed(n, a, b, count):
    "A distance that width n explains, and chance with probability 1e-8."
    return 1.5 / np.sqrt(n) + kolmogi(1e-8 / count) * np.sqrt(1 / a + 1 / b)


def largest(x, y):
    "The largest distance over the columns of two samples."
    return max(ks_2samp(u, v, method="asymp").statistic for u, v in zip(x.T, y.T))


def explicit(n, size, steps, seed):
    """Gradient descent on explicit matrices: scores, outputs and gradients, and what
    the hidden units would be if nothing but the attention weights had moved.
    """
    rng = np.random.default_rng(seed)
    x = np.linalg.cholesky(K) @ rng.standard_normal((size, 2, n))
    WQ, WK, WV, W1, W2 = rng.standard_normal((5, size, n, n)) / np.sqrt(n)
    WQ, WK = WQ * 3**0.5, WK * 3**0.5
    r = rng.standard_normal((size, n, 1))
    column = lambda v: v[:, :1].mT
    start = x[:, 0], x @ WV.mT, W1.copy(), W2.mT @ r
    seen = []
    for _ in range(steps + 1):
        q, k, v = WQ @ column(x), x @ WK.mT, x @ WV.mT
        p = (k @ q)[..., 0] / n**0.5
        A = softmax(p)
        u = column(x) + (A[:, None] @ v).mT
        phi = np.tanh(W1 @ u)
        h = W2 @ phi
        f = (r * h).sum((1, 2)) / n**0.5
        dphi = W2.mT @ r / n**0.5
        dg = dphi * (1 - phi**2)
        du = W1.mT @ dg
        a = (v @ du)[..., 0]
        x1, v0, W, D = start
        g = W @ (x1[..., None] + (A[:, None] @ v0).mT)
        bare = np.tanh(g)
        ω = v0 @ W.mT
        output = (D * bare).sum((1, 2)) / n**0.5
        gradients = (ω @ (D * (1 - bare**2)))[..., 0] / n**0.5
        seen.append((p, f, a, output, gradients))
        χ = ((f - TARGET) * RATE / n)[:, None, None]
        dp = (A * (a - (A * a).sum(-1, keepdims=True)))[..., None] / n**0.5
        step = [
            (WQ, 3 * (k.mT @ dp) @ x[:, :1]),
            (WK, 3 * (q @ dp.mT) @ x),
            (WV, du @ (A[:, None] @ x)),
            (W1, dg @ u.mT),
            (W2, r @ phi.mT / n**0.5),
            (r, h * n**0.5),
        ]
        for W, gradient in step:
            W -= χ * gradient
    return [np.stack(x, axis=1) for x in zip(*seen)]


def limit(steps=3, draws=2000, **options):
    return trained_limit(
        K, [TARGET], **VAR, steps=steps, learning_rate=RATE, draws=draws, **options
    )


def columns(p, f, a):
    "Statistics of scores, outputs and gradients, (networks, k)."
    p, f, a = (x.reshape(*x.shape[:2], -1) for x in (p, f, a))
    moved = p[:, 1:] - p[:, :1]
    turned = np.diff(a, axis=1)
    parts = [p, f, a, moved, turned, f * a, f[:, 1:] * moved]
    return np.concatenate([x.reshape(len(f), -1) for x in parts], axis=1)


# The law


@pytest.mark.power(
    "distribution functions .35 apart; the two wrong limits are .5 and .9 away"
)
@pytest.mark.long
def test_scores_outputs_and_gradients_of_explicit_networks():
    n, size = 128, 400
    networks = columns(*explicit(n, size, 2, seed=0)[:3])
    law = limit(2, draws=1200, rng=1)
    most = allowed(n, size, 1200, networks.shape[1])
    assert largest(networks, columns(*law[:3])) < most
    for part in ("motion", "first order"):
        wrong = limit(2, draws=1200, rng=2, without=part)
        assert largest(networks, columns(*wrong[:3])) > most + 0.1


@pytest.mark.power("half of a term, at five standard errors and more")
@pytest.mark.long
def test_each_term_of_first_order_network_by_network():
    """The output of a network minus that with weights of attention moved only is the
    sum of the first-order terms, up to n^(−1/2); so with the gradients. The rest has
    no share of any term: a term left out, or counted twice, would make its share 1.
    """
    error = {}
    for n, size in ((64, 200), (256, 80)):
        outputs, gradients = first_order_rests(n, size)
        error[n] = [rms(rest) / rms(told) for rest, told, *_ in (outputs, gradients)]
    assert (np.array(error[256]) < 0.75 * np.array(error[64])).all()  # √4 = 2
    assert max(error[256]) < 0.35
    for rest, _, *terms in (outputs, gradients):
        for term in terms:
            assert abs(np.sum(rest * term) / np.sum(term**2)) < 0.6


def first_order_rests(n, size):
    "Of outputs and gradients: rests, the sum, and each term."
    p, f, a, output, gradients = explicit(n, size, 1, seed=n)
    assert np.abs(output[:, 0] - f[:, 0]).max() < 1e-9
    assert np.abs(gradients[:, 0] - a[:, 0]).max() < 1e-9
    A = softmax(p)
    family = one_text(size)
    (before,), (after,) = (family.units(A[:, s, None, None]) for s in (0, 1))
    pair = averages_of(family, before, after)
    u = family.covariance(before, after)
    values = family.covariance(before, after, values=2) - u
    χ = -RATE * (f[:, :1] - TARGET)
    terms = [χ[:, 0] * x for x in (pair.values, u * pair.slopes, values * pair.slopes)]
    told = terms[0] + sum(terms)  # readout and W_2 have the same
    mixed = χ * family.with_values(before, after.text) * pair.slopes[:, None]
    turned = 2 * χ * pair.slope_b
    bent = χ * (u + values)[:, None] * pair.bend
    sloped = turned + bent + 2 * mixed  # W_1 and the values have the same
    return (
        (f[:, 1] - output[:, 1] - told, told, *terms),
        (a[:, 1] - gradients[:, 1] - sloped, sloped, turned, bent, mixed),
    )


def rms(x):
    return np.sqrt(np.mean(x**2))


def one_text(size, functions=None, nodes=48):
    phi = functions or (tanh, slope(tanh), slope(slope(tanh)))
    return Family(K, np.array([[0, 1]]), 1, phi, 9.0, RATE, None, nodes, ())


@pytest.mark.power("distribution functions .25 apart; at half the rate .5 and more")
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.slow
def test_texts_heads_and_tokens(loss):
    "Against networks that the package trains; half the rate is another law."
    n, size, steps = 512, 400, 2
    how = dict(texts=[[0, 1, 2], [2, 1, 0]], heads=2, **VAR)
    y = [1.5, -1.0] if loss == "squared" else [1.0, 0.0]
    rate = 0.15 if loss == "squared" else 0.6
    net = attention_mlp(K3, **how)
    run = train(
        net.program,
        net.outputs,
        y,
        width=n,
        steps=steps,
        learning_rate=rate,
        size=size,
        loss=loss,
        watch=net.scores,
        rng=0,
        verbose=False,
    )
    networks = ends(run.watched, run.outputs)
    law = {
        x: trained_limit(
            K3, y, **how, steps=steps, learning_rate=x, loss=loss, draws=800, rng=1
        )
        for x in (rate, rate / 2)
    }
    right, half = (ends(law[x].scores, law[x].outputs) for x in (rate, rate / 2))
    most = allowed(n, size, 800, networks.shape[1])
    assert largest(networks, right) < most
    assert largest(networks, half) > most


def ends(p, f):
    "Outputs, scores, motion and their products."
    p = p.reshape(*p.shape[:2], -1)
    moved = (p - p[:, :1])[:, 1:]
    both = moved * f[:, 1:, :1]
    parts = [f, p, moved, both]
    return np.concatenate([x.reshape(len(f), -1) for x in parts], axis=1)


@pytest.mark.power("distribution functions .07 apart; without the scores .1 and more")
@pytest.mark.long
def test_the_output_at_the_start_is_gaussian_given_the_scores():
    law = limit(0, draws=3000, rng=0)
    A = softmax(law.scores[:, 0, 0, 0])
    v = 1 + np.einsum("di,ij,dj->d", A, K, A)
    q = np.array([tanh.dual([[x]])[0, 0] for x in v])
    f = law.outputs[:, 0, 0]
    assert kstest(f / np.sqrt(q), "norm").pvalue > 1e-8
    assert kstest(f / np.sqrt(1.5 * q), "norm").pvalue < 1e-8
    assert law.gradients.shape == (3000, 1, 1, 1, 2)


def test_scores_move_as_the_gradients_say():
    "Exactly: −2η C times the gradient of the loss by the scores."
    law = limit(2, draws=50, rng=0)
    p, f, a = law.scores[:, :, 0, 0], law.outputs, law.gradients[:, :, 0, 0]
    A = softmax(p)
    push = (f - TARGET) * A * (a - (A * a).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        np.diff(p, axis=1), -2 * RATE * 9 * push[:, :-1] @ K, atol=1e-12
    )


def test_the_same_text_twice_has_one_output():
    "The same text twice: its outputs and gradients agree, by a singular covariance."
    law = trained_limit(
        K, [1.0, 1.0], texts=[[0, 1], [0, 1]], heads=2, steps=1, draws=40, rng=0
    )
    np.testing.assert_allclose(law.outputs[..., 0], law.outputs[..., 1], atol=1e-3)
    np.testing.assert_allclose(
        law.gradients[:, :, 0], law.gradients[:, :, 1], atol=1e-3
    )


# Averages, and the field


@pytest.mark.power("averages off by 2 %, at six standard errors")
@pytest.mark.long
def test_averages_against_draws():
    "All six, for two texts and two heads, over a million coordinates."
    rng = np.random.default_rng(0)
    texts = np.array([[0, 1], [2, 0]])
    functions = tanh, slope(tanh), slope(slope(tanh))
    family = Family(K3, texts, 2, functions, 1.0, 0.1, None, 48, ())
    A = softmax(rng.standard_normal((1, 2, 2, 2)))
    a, b = family.units(A)
    pair = averages_of(family, a, b)
    L = np.linalg.cholesky(K3)
    N = 10**6
    ξ = L @ rng.standard_normal((3, N))
    ω = L @ rng.standard_normal((2, 3, N))
    g, h = (ξ[x.text[0]] + np.einsum("hj,hjn->n", x.mix[0], ω) for x in (a, b))
    of_a, of_b = (ω[:, x.text].reshape(-1, N) for x in (a, b))
    phi, first, second = functions
    drawn = [
        phi(g) * phi(h),
        first(g) * first(h),
        first(g) * phi(h) * of_a,
        phi(g) * first(h) * of_b,
        first(g) * second(h) * of_b,
        first(g) * first(h) * of_a[:, None] * of_b,
    ]
    for x, told in zip(drawn, pair):
        error = x.std(-1) / np.sqrt(N)
        assert (np.abs(x.mean(-1) - told[0]) < 6 * error).all()
    wrong = averages_of(family, a, family.units(A[:, ::-1])[1])
    assert np.abs(wrong.products - pair.products).max() > 6 * np.max(error)


def test_averages_of_polynomials_are_exact():
    "φ(x) = x²: Isserlis."
    family = one_text(1, (quadratic, lambda x: 2 * x, lambda x: 2 + 0 * x))
    units = [family.units(np.array([[[w]]]))[0] for w in ([0.2, 0.8], [0.7, 0.3])]
    a, b = units
    v, c, w = (family.covariance(x, y)[0] for x, y in ((a, a), (a, b), (b, b)))
    s, t = (family.with_values(x, np.array([0, 1]))[0] for x in units)
    pair = averages_of(family, a, b)
    told = [
        v * w + 2 * c * c,
        4 * c,
        2 * (w * s + 2 * c * t),
        2 * (v * t + 2 * c * s),
        4 * s,
        4 * (c * K + np.outer(s, t) + np.outer(t, s)),
    ]
    for x, y in zip(pair, told):
        np.testing.assert_allclose(x[0], y, rtol=1e-9)


@pytest.mark.power("entries of a covariance .1 off")
def test_the_field_is_drawn_value_by_value():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 3))
    G = root @ root.T  # singular: the last value is a combination of the others
    N = 40_000
    stack = np.broadcast_to(G, (N, 4, 4))
    seen = new_values(stack[:, :2, :2], np.zeros((N, 0)), rng)
    seen = np.concatenate([seen, new_values(stack[:, :3, :3], seen, rng)], axis=1)
    seen = np.concatenate([seen, new_values(stack, seen, rng)], axis=1)
    products = seen[:, :, None] * seen[:, None]
    error = products.std(0) / np.sqrt(N)
    assert (np.abs(products.mean(0) - G) < 6 * error).all()
    weights = np.linalg.lstsq(root[:3].T, root[3], rcond=None)[0]
    np.testing.assert_allclose(seen[:, 3], seen[:, :3] @ weights, atol=1e-3)


def test_more_nodes_change_less_than_is_said():
    few, many = (limit(1, draws=8, nodes=k, rng=0) for k in (40, 96))
    assert few.error > 10 * many.error
    assert np.abs(few.outputs - many.outputs).max() < 20 * few.error
    with pytest.warns(UserWarning, match="pass more `nodes`"):
        limit(1, draws=8, nodes=10, rng=0)


def test_seeds():
    a, b, c = (limit(1, draws=20, rng=k).outputs for k in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_kinks_are_told_from_smooth_functions():
    "E φ″(σz)σ = E φ′(σz)z, which is not zero for GELU."
    smooth = trained_limit(K, [1.0], activation="gelu", draws=64, rng=0)
    assert np.isfinite(smooth.outputs).all()
    with pytest.raises(ValueError, match="must be twice differentiable, got relu"):
        trained_limit(K, [1.0], activation="relu")
