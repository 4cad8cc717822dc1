from .nodes import (
    AssumptionError as AssumptionError,
    AssumptionWarning as AssumptionWarning,
)
from .program import Program as Program
from .infinite_width import Limit as Limit, limit as limit
from .finite_width import (
    ProgramTokens as ProgramTokens,
    gram as gram,
    simulate as simulate,
)
from .gradients import ProgramGradients as ProgramGradients
from .architectures import (
    attention as attention,
    conv1d as conv1d,
    lstm as lstm,
    mlp as mlp,
    rnn as rnn,
)

__all__: list[str]
