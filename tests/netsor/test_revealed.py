"""Matrices that are revealed step by step: broken variants are rejected."""

import pytest
from conftest import BEYOND_THEOREM, nightly
from revealed_cases import p_of_law, trained

from infattn_nb.netsor.revealed import Revealed

pytestmark = BEYOND_THEOREM


def fresh_matrix(self, E, turn, other, forward):
    return self.sd * self.rng.standard_normal((*E.shape[:2], other.rows.shape[2]))


def old_images(self, X, state):  # what was added is not seen by new products
    a, _ = self._coordinates(X, self.right, self.left)
    return state.start_factor * a @ self.right.images, a


BROKEN = {
    "a fresh matrix for the backward pass": dict(_images=fresh_matrix),
    "updates that forget the images": dict(times=old_images),
    "half the rate": dict(),
}


@pytest.mark.power("broken variants at p < 1e-12")
@pytest.mark.parametrize("name", nightly(["gated product", "two blocks"], "two blocks"))
@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.long
def test_broken_variants_are_rejected(fault, name, monkeypatch, size=1_000):
    for method, f in BROKEN[fault].items():
        monkeypatch.setattr(Revealed, method, f)
    try:
        ours = trained(
            name, 12, size, learning_rate=0.05 if fault == "half the rate" else 0.1
        )
    except ValueError as e:
        # nor does it train, which all networks of torch's did
        assert "keep the losses of most networks bounded" in str(e)
    else:
        assert p_of_law(name, 12, ours) < 1e-12
