from .distances import (
    hellinger as hellinger,
    kde_kl as kde_kl,
    kl_divergence as kl_divergence,
    paired_kl as paired_kl,
    total_variation as total_variation,
    wasserstein as wasserstein,
    kde as kde,
    kde_trials as kde_trials,
)
from .regimes import (
    LimitErrorResult as LimitErrorResult,
    limit_error as limit_error,
    tail_probability as tail_probability,
    gaussian_distances as gaussian_distances,
    gaussian_limits as gaussian_limits,
    importance_tail as importance_tail,
    tied_law as tied_law,
    tied_scores as tied_scores,
)
from .rates import (
    first_order as first_order,
    fluctuations as fluctuations,
    kl_constant as kl_constant,
    noise_floor as noise_floor,
    scaled_difference as scaled_difference,
    smoothed as smoothed,
)
from .robustness import (
    cross_mask as cross_mask,
    distance_bias as distance_bias,
    equicorrelated as equicorrelated,
    gaussian as gaussian,
    positions as positions,
    rademacher as rademacher,
    simulate_weights as simulate_weights,
    sparse as sparse,
    student as student,
    uniform as uniform,
)
from .long_sequences import (
    effective_alpha as effective_alpha,
    entropy as entropy,
    mean_entropy as mean_entropy,
    participation_moments as participation_moments,
    poisson_dirichlet_limit as poisson_dirichlet_limit,
    row_overlap as row_overlap,
    width_term as width_term,
)

__all__: list[str]
