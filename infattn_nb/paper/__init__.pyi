from .figures import (
    figure_1a as figure_1a,
    figure_1b as figure_1b,
    figure_2a as figure_2a,
    figure_2b as figure_2b,
    figure_3a as figure_3a,
    figure_3b as figure_3b,
    figure_heads as figure_heads,
    figure_relu_a as figure_relu_a,
    figure_relu_b as figure_relu_b,
    paper_layer as paper_layer,
    sweep as sweep,
)
from .tables import read_table as read_table, write_table as write_table
from .command import (
    infattn_figures as infattn_figures,
    explicit_seconds as explicit_seconds,
    reproduce as reproduce,
)

__all__: list[str]
