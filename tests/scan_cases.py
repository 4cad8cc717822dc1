"""Cases and helpers of several test files."""

from infattn_nb import Transformer
from infattn_nb.initialisation import Thresholds
from infattn_nb.initialisation.quantities import QUANTITIES, quantity
from infattn_nb.transformer import embedding_cov

NAMES = [q.name for q in QUANTITIES]
WORDS = embedding_cov(range(6), 1.0, 0.3)
SMALL = Transformer.uniform(WORDS, layers=3, heads=2, mask="causal", final_norm=True)


def numbers(d):
    return {q.name: q.value(d) for q in QUANTITIES}


def powers(found, thresholds=Thresholds()):
    "Of numbers that stand for a network."
    limits = {q.name: getattr(thresholds, q.threshold) for q in QUANTITIES}
    return {
        name: quantity(name).power(x, limits[name])
        for name, x in found.items()
        if limits[name] is not None
    }
