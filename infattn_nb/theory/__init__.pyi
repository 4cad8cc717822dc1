from .pseudo_lipschitz import (
    break_pseudo_lipschitz as break_pseudo_lipschitz,
    compose as compose,
    growth as growth,
    product as product,
    softmax_weight as softmax_weight,
)
from .score_terms import (
    ExchangeableScores as ExchangeableScores,
    cumulants as cumulants,
    quadratic_form as quadratic_form,
    score_cov as score_cov,
    score_gram as score_gram,
    variance_gamma as variance_gamma,
)
from .theorem import (
    averages as averages,
    conditional_average as conditional_average,
    curves as curves,
)
from .proof import (
    averaged_constant as averaged_constant,
    gaussian_mean as gaussian_mean,
    split as split,
)
from .trained_layer import (
    attention_mlp as attention_mlp,
    trained_limit as trained_limit,
)
from .scores_decide import (
    common_experts as common_experts,
    concentrated as concentrated,
    output_of_experts as output_of_experts,
)

__all__: list[str]
