"""A model of another version warns when it is read."""

import pickle

import numpy as np
import pytest
from conftest import ROUGH_POSTERIOR
from regressor_cases import data
from sklearn.exceptions import InconsistentVersionWarning

from infattn_nb import AttentionRegressor
from infattn_nb.learning import estimator

pytestmark = ROUGH_POSTERIOR


SMALL = dict(n_islands=2, n_particles=16, n_moves=2)


X, Y = data(4, 3, 2)


def test_another_version_warns_when_it_reads_a_pickle(monkeypatch):
    m = AttentionRegressor(3, random_state=0, **SMALL).fit(X, Y)
    with monkeypatch.context() as c:
        c.setattr(estimator, "_VERSION", "0.0.1")
        old = pickle.dumps(m)
    with pytest.warns(
        InconsistentVersionWarning, match="AttentionRegressor from version 0.0.1"
    ):
        again = pickle.loads(old)
    np.testing.assert_array_equal(again.predict(X), m.predict(X))
    assert set(vars(again)) == set(vars(m))
