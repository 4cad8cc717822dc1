"""Cases and helpers of several test files."""

from infattn_nb.initialisation.quantities import QUANTITIES


def numbers(d):
    return {q.name: q.value(d) for q in QUANTITIES}
