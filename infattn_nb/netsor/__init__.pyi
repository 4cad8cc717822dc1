from .architectures import (
    attention as attention,
    conv1d as conv1d,
    lstm as lstm,
    mlp as mlp,
    rnn as rnn,
)

__all__: list[str]
