"""Public records check every field, and all their attributes can be looked at."""

import dataclasses
import inspect
import re

import numpy as np
import pytest
import results
from public import PUBLIC
from scipy.stats import norm

from infattn_nb import (
    Attention,
    AttentionDescent,
    AttentionRegressor,
    CircuitDescent,
    CommonTokens,
    Mixture,
    Norm,
    Program,
    ProgramTokens,
    Rotary,
    ScaleMixture,
    Thresholds,
    Tokens,
    gradients,
    limit,
    limit_error,
    report,
    scan,
)
from infattn_nb.huggingface import RateTransfer
from infattn_nb.netsor.nodes import AssumptionError, AssumptionWarning
from infattn_nb.nonlinearities import gelu, relu
from infattn_nb.theory import ExchangeableScores

ONE_SENTENCE = re.compile(r"`[^`]+` must [^\n]+; [^\n]+")
NET = results.TRANSFORMER
BLOCK = NET.blocks[0]
LAYER = Attention(Tokens(3, gelu, cov=np.eye(3)))


def network():
    p = Program()
    W, R = p.matrix(), p.readout()
    return p, [R @ relu(W @ v) for v in p.inputs(np.eye(2))]


def program_tokens():
    p = Program()
    W = p.matrix()
    return ProgramTokens(p, [relu(W @ v) for v in p.inputs(np.eye(2))])


def mixture(**fields):
    given = dict(
        means=np.array([[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]]),
        variances=np.array([[1.0, 2.0, 0.5], [0.3, 1.0, 0.5]]),
        weights=np.array([0.25, 0.75]),
    )
    return Mixture(**given | fields)


EXAMPLES = {
    "Attention": lambda: LAYER,
    "Block": lambda: BLOCK,
    "CommonTokens": lambda: CommonTokens(3, relu),
    "Chain": results.chain,
    "FeedForward": lambda: BLOCK.feedforward,
    "Gradients": results.slopes,
    "HierarchicalGaussian": results.law,
    "Limit": lambda: limit(network()[0], 64),
    "LimitErrorResult": lambda: limit_error(LAYER, 256, draws=2**14),
    "Mixture": mixture,
    "Nonlinearity": lambda: relu,
    "Norm": Norm,
    "ProgramGradients": lambda: gradients(*network(), 8),
    "RateTransfer": lambda: RateTransfer(
        [8], [0.1], np.ones((1, 1, 2)), np.ones((1, 2)), False, {}
    ),
    "Report": lambda: report(NET, size=4, rng=0),
    "Rotary": Rotary,
    "Scan": lambda: scan(NET, scores=(1, 2), residual=(1,), size=2, rng=0),
    "SelfAttention": lambda: BLOCK.attention,
    "Thresholds": Thresholds,
    "Tokens": lambda: Tokens(3, relu),
    "Training": results.training,
    "Transformer": lambda: NET,
}
OTHERS = {  # public classes that are no records
    "AssumptionError": lambda: AssumptionError("a sentence"),
    "AssumptionWarning": lambda: AssumptionWarning("a sentence"),
    "AttentionDescent": results.descent,
    "CircuitDescent": results.circuits,
    "AttentionDescent, infinitely many heads": lambda: results.descent(heads=np.inf),
    "AttentionDescent, not fitted": AttentionDescent,
    "CircuitDescent, not fitted": CircuitDescent,
    "AttentionRegressor": results.regressor,
    "AttentionRegressor, not fitted": AttentionRegressor,
    "ExchangeableScores": lambda: ExchangeableScores(np.eye(2), [1.0]),
    "Program": results.program,
    "ProgramTokens": program_tokens,
    "ScaleMixture": lambda: ScaleMixture([1.0, 2.0]),
}


def is_record(kind):
    if not inspect.isclass(kind):
        return False
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    return frozen or issubclass(kind, tuple)


def test_no_public_record_is_forgotten():
    records = {name for name, kind in PUBLIC.items() if is_record(kind)}
    assert records == set(EXAMPLES)
    classes = {name for name, kind in PUBLIC.items() if inspect.isclass(kind)}
    assert classes - records == {name.split(",")[0] for name in OTHERS}


def fields_of(record):
    return [f.name for f in dataclasses.fields(record) if f.init and f.name[0] != "_"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_field_of_a_record_is_checked(name):
    "An object of no kind, and an array of seven axes without a number in it."
    record = EXAMPLES[name]()
    assert type(record) in (PUBLIC[name], *PUBLIC[name].__subclasses__())
    for field in fields_of(record):
        for wrong in (object(), np.full((2,) * 7, np.nan)):
            with pytest.raises((TypeError, ValueError)) as error:
                dataclasses.replace(record, **{field: wrong})
            assert ONE_SENTENCE.fullmatch(str(error.value)), (field, str(error.value))


@pytest.mark.parametrize("name", [*EXAMPLES, *OTHERS])
@pytest.mark.filterwarnings("error")
def test_everything_can_be_looked_at(name):
    "By dir, hasattr and inspect.getmembers, as editors and debuggers do."
    thing = (EXAMPLES | OTHERS)[name]()
    for attribute in dir(thing):
        hasattr(thing, attribute)
    assert dict(inspect.getmembers(thing))


# -- a mixture


WRONG = {
    "negative variances": (dict(variances=-np.ones((2, 3))), "variances"),
    "weights that sum to three": (dict(weights=np.array([1.0, 2.0])), "weights"),
    "a negative weight": (dict(weights=np.array([-1.0, 2.0])), "weights"),
    "variances that broadcast": (dict(variances=np.ones(3)), "variances"),
    "a weight too many": (dict(weights=np.ones(3) / 3), "weights"),
    "no number": (dict(means=np.full((2, 3), np.nan)), "means"),
    "no Gaussian": (dict(means=np.zeros((0, 3))), "means"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mixture_checks_shape_sign_and_sum(case):
    fields, name = WRONG[case]
    with pytest.raises(ValueError, match=f"`{name}` must"):
        mixture(**fields)


def test_a_mixture_cannot_be_changed():
    weights = np.array([0.5, 0.5])
    law = mixture(weights=weights)
    weights[0] = 9.0
    assert law.cdf(0.0).max() <= 1
    with pytest.raises(ValueError, match="read-only"):
        law.weights[0] = 1.0


def test_a_mixture_has_the_methods_of_a_distribution():
    """Each by its definition, from scipy's Gaussians; quantiles are inverses, also
    where a probability underflows its complement.
    """
    law = mixture()
    sd = np.sqrt(law.variances)
    w = law.weights[:, None]
    y = np.array([-1.0, 0.3, 4.0])
    each = norm(law.means, sd)
    for name in ("pdf", "cdf", "sf"):
        expected = (w * getattr(each, name)(y)).sum(0)
        np.testing.assert_allclose(getattr(law, name)(y), expected, rtol=1e-13)
        np.testing.assert_allclose(
            getattr(law, f"log{name}")(y), np.log(expected), rtol=1e-12
        )
    far = law.logsf(60.0)
    np.testing.assert_allclose(
        far, np.logaddexp(*(np.log(w) + each.logsf(60.0))), rtol=1e-13
    )
    np.testing.assert_allclose(law.logcdf(-60.0), law.logcdf(-60.0))
    for q in (1e-12, 0.2, 0.5, 0.99):
        np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-9)
        np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-9)
    tiny = 1e-100
    np.testing.assert_allclose(law.sf(law.isf(tiny)), tiny, rtol=1e-6)
    np.testing.assert_array_equal(law.median(), law.ppf(0.5))
    np.testing.assert_array_equal(law.ppf([0.0, 1.0, 0.0]), [-np.inf, np.inf, -np.inf])
    np.testing.assert_array_equal(law.isf([0.0, 1.0, 0.0]), [np.inf, -np.inf, np.inf])
    assert law.rvs((4, 2), rng=0).shape == (4, 2, 3)
    np.testing.assert_array_equal(law.rvs(5, rng=1), law.rvs(5, random_state=1))


@pytest.mark.filterwarnings("error")
def test_gaussians_without_variance_are_atoms():
    law = Mixture(np.array([[0.0], [1.0]]), np.zeros((2, 1)), np.array([0.25, 0.75]))
    steps = {-1.0: 0, 0.0: 0.125, 0.5: 0.25, 1.0: 0.625, 2.0: 1}
    for y, p in steps.items():
        np.testing.assert_allclose(law.cdf(y), p)
        np.testing.assert_allclose(law.sf(y), 1 - p)
        assert law.logpdf(y) == (np.inf if y in (0, 1) else -np.inf)
    quantiles = {0.0: 0, 0.1: 0, 0.2: 0, 0.4: 1, 0.9: 1, 1.0: 1}
    for q, y in quantiles.items():
        np.testing.assert_allclose(law.ppf(q), y, atol=1e-12)
        np.testing.assert_allclose(law.isf(1 - q), y, atol=1e-12)


@pytest.mark.parametrize(
    "law",
    (ScaleMixture([1.0, 2.0]), ScaleMixture([1.0, 2.0])(0.0, 2.0), mixture()),
    ids=("law", "frozen", "mixture"),
)
def test_one_seed_under_one_name(law):
    with pytest.raises(ValueError, match="`random_state` must be omitted if `rng`"):
        law.rvs(3, rng=0, random_state=1)
