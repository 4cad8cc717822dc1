"""An example of each public class, for the tests that try all of them."""

import re

import numpy as np
import results

from infattn_nb import Attention, AttentionDescent, AttentionRegressor, CircuitDescent
from infattn_nb import CommonTokens, FeedForward, Norm, Program, Rotary, ScaleMixture
from infattn_nb import Tokens, gradients, limit, limit_error, report, scan
from infattn_nb.distributions import Mixture
from infattn_nb.huggingface import CoordinateCheck, RateTransfer
from infattn_nb.initialisation import Thresholds
from infattn_nb.netsor import ProgramTokens
from infattn_nb.netsor.nodes import AssumptionError, AssumptionWarning
from infattn_nb.nonlinearities import gelu, relu
from infattn_nb.theory import ExchangeableScores
from infattn_nb.training import SGD, Adam, AdamW, Lion, Muon
from infattn_nb.transformer import Adapters, Experts, LatentAttention, Projection

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
    "Adam": Adam,
    "AdamW": AdamW,
    "Attention": lambda: LAYER,
    "Block": lambda: BLOCK,
    "CommonTokens": lambda: CommonTokens(3, relu),
    "Chain": results.chain,
    "Experts": lambda: Experts(4, 2, FeedForward(1)),
    "Projection": lambda: Projection(0.5),
    "Adapters": lambda: Adapters(4, 8.0, ("q",)),
    "FeedForward": lambda: BLOCK.feedforward,
    "Gradients": results.slopes,
    "HierarchicalGaussian": results.law,
    "LatentAttention": lambda: LatentAttention(2, 4),
    "Lion": Lion,
    "Muon": lambda: Muon(momentum=0.9),
    "SGD": lambda: SGD(momentum=0.9),
    "Limit": lambda: limit(network()[0], 64),
    "LimitErrorResult": lambda: limit_error(LAYER, 1024, draws=2**12),
    "Mixture": mixture,
    "Nonlinearity": lambda: relu,
    "Norm": Norm,
    "ProgramGradients": lambda: gradients(*network(), 8),
    "RateTransfer": lambda: RateTransfer(
        [8], [0.1], np.ones((1, 1, 2)), np.ones((1, 2)), False, {}
    ),
    "CoordinateCheck": lambda: CoordinateCheck(
        [8, 16], [1], ["logits"], np.ones((2, 1, 1, 2)), dict(parametrization="mup")
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
