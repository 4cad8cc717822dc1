"""The estimators before, during and after a fit, and when they are read again."""

import pickle

import numpy as np
import pytest
import regressor_cases
from conftest import ROUGH_POSTERIOR
from descent_cases import LABELS, SMALL, data

exceptions = pytest.importorskip("sklearn.exceptions")

from infattn_nb import AttentionDescent, AttentionRegressor, CircuitDescent
from infattn_nb.learning import estimator


def test_a_failed_fit_changes_nothing():
    X, y = data()
    model = AttentionDescent(max_iter=20, random_state=0).fit(X, y)
    before = model.values(X)
    with pytest.raises(ValueError):
        model.fit(X, y[:3])
    np.testing.assert_array_equal(model.values(X), before)


def test_repr_clone_and_pickle():
    X, y = data()
    model = AttentionDescent(3, head_width=8, **SMALL).fit(X, y)
    assert (
        repr(AttentionDescent(3, learning_rate=0.5))
        == "AttentionDescent(heads=3, learning_rate=0.5)"
    )
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(X), model.predict(X)
    )
    with pytest.raises(ValueError, match="wide"):
        model.set_params(wide=3)


X, Y = data()


def test_nothing_is_answered_before_fit():
    "Every method raises scikit-learn's own error."
    asked = dict.fromkeys(("values", "predict", "predict_proba", "attention"), (X,))
    asked |= dict(scores=(X,), tangent=(X,), score=(X, LABELS), plot=())
    asked |= dict(predictive=(X, 0.1))
    own = {
        AttentionDescent: dict(kernel_error_=None),
        CircuitDescent: dict(circuits_=None, circuit_size=(), without=("value", ())),
    }
    for kind, more in own.items():
        for name, given in (asked | more).items():
            model = kind() if name == "predictive" else kind(loss="softmax")
            with pytest.raises(exceptions.NotFittedError, match="not fitted yet"):
                answer = getattr(model, name)
                answer(*given)
        known = {
            name
            for base in kind.__mro__
            if base.__module__.startswith("infattn_nb")
            for name in vars(base)
            if not name.startswith("_")
            and not name.endswith("_request")
            and name not in ("fit", "from_torch", *kind().get_params())
        }
        assert known == {*asked, *more}


def test_probabilities_are_there_for_classes_alone():
    classes, numbers = (
        AttentionDescent(loss="logistic", max_iter=5, n_networks=2),
        AttentionDescent(max_iter=5, n_networks=2),
    )
    assert hasattr(classes, "predict_proba")
    assert not hasattr(numbers, "predict_proba")
    assert not hasattr(numbers.fit(X, Y), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba") as error:
        numbers.predict_proba(X)
    assert "must follow a loss for classes, got squared" in str(error.value.__cause__)
    np.testing.assert_allclose(classes.fit(X, LABELS).predict_proba(X).sum(1), 1)


@ROUGH_POSTERIOR
def test_another_version_warns_when_it_reads_a_pickle(monkeypatch):
    X, y = regressor_cases.data(4, 3, 2)
    small = dict(n_islands=2, n_particles=16, n_moves=2)
    m = AttentionRegressor(3, random_state=0, **small).fit(X, y)
    with monkeypatch.context() as c:
        c.setattr(estimator, "_VERSION", "0.0.1")
        old = pickle.dumps(m)
    with pytest.warns(
        exceptions.InconsistentVersionWarning,
        match="AttentionRegressor from version 0.0.1",
    ):
        again = pickle.loads(old)
    np.testing.assert_array_equal(again.predict(X), m.predict(X))
    assert set(vars(again)) == set(vars(m))
