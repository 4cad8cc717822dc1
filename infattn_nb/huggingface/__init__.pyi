from .read import (
    from_config as from_config,
    from_torch as from_torch,
    widened as widened,
)
from .weights import init_table as init_table, initialise as initialise
from .trained import next_tokens as next_tokens, weights_of as weights_of
from .transfer import (
    CoordinateCheck as CoordinateCheck,
    RateTransfer as RateTransfer,
    coordinate_check as coordinate_check,
    rate_transfer as rate_transfer,
)
from .train_command import infattn_train as infattn_train
from .families import families_table as families_table

__all__: list[str]
