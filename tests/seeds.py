"""The statistical tests again under many other seeds, with fewer samples: do they ever cry wolf?

    python tests/seeds.py [last seed] [samples] [first seed]

Every integer seed in the tests and in the package is replaced by another one, as often as asked (default: 200 times).
Prints for each test how many p-values it computed, the smallest, and how often it failed, which must be never. (A
p-value below 1e-9 that does not make a test fail belongs to a check that is there to be small: it shows the power of the
test, and is left out.) Tests that show that a nearly-right version fails need all their samples and are not repeated here.
"""
import importlib
import inspect
import itertools
import sys
import time
import warnings
from collections import defaultdict

import numpy as np
import scipy.stats

REAL, RNG = np.random.SeedSequence, np.random.default_rng
TESTS = {
    "test_exact": "same_law_as_literal_simulation one_output_alone_has_the_same_law coordinates_of_a_clipped_layer_may_use_the_identity",
    "test_programs": "without_matrices_the_law_is_the_same attention_written_as_a_program tokens_from_a_program tokens_after_attention",
    "test_clt": "score_gram programs_against_simulation limits_and_their_speed samplers_of_ones_own attention_layers",
    "test_theorem": """every_network_approaches_its_own_limit the_limit_is_random averages_are_those_of_literal_networks coordinates_share_their_scores
        the_parts_add_up the_control_variate_has_mean_zero both_parts_fall_like_one_over_n without_scores_there_is_no_second_part curves_converge_uniformly""",
    "test_regimes": "tied_layer_is_the_literal_one importance_sampling_without_inflation_is_conditional_monte_carlo wide_tails_of_narrow_layers",
    "test_limit": "the_limit_is_the_last_width gaussian_limits infinite_heads_of_finite_head_width atoms user_defined_law extremes_are_right",
    "test_law": "against_a_huge_width",
    "test_divergence": "kde_and_densities_agree_where_both_are_valid rate paired_kl_at_known_widths noise_floor_falls_with_the_sample_size",
    "test_rates": "fluctuations_cover_the_gram_matrix smoothed",
    "test_robustness": """gaussian_entries_give_the_recipe entries_have_mean_zero_and_variance_one second_moments_do_not_know_the_entries heavy_tails_are_slow
        positions_at_finite_width cross_attention narrow_heads_keep_their_wishart_factors""",
}

class Seeds(type):
    "Stands in for SeedSequence: integer seeds are shifted."
    shift = 0
    def __instancecheck__(cls, x): return isinstance(x, REAL)
    def __call__(cls, entropy=None, **options):
        return REAL([cls.shift, entropy] if isinstance(entropy, (int, np.integer)) and not options.get("spawn_key") else entropy, **options)

class Shifted(metaclass=Seeds): pass

def shifted_rng(seed=None): return RNG(Shifted(seed) if isinstance(seed, (int, np.integer)) else seed)

def cases(function):
    "All arguments of a parametrised test."
    marks = [m.args for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]
    for values in itertools.product(*(m[1] for m in marks)):
        arguments = {}
        for (names, _), value in zip(marks, values):
            names = [n.strip() for n in names.split(",")]
            arguments |= dict(zip(names, value if len(names) > 1 else [value]))
        yield arguments

def main(seeds=200, samples=1000, first=1):
    warnings.simplefilter("ignore")
    np.random.SeedSequence, np.random.default_rng = Shifted, shifted_rng
    import infattn_nb.hierarchical as hierarchical
    hierarchical.SeedSequence, hierarchical.default_rng = Shifted, shifted_rng
    p_values, failures, seconds, now = defaultdict(list), defaultdict(list), defaultdict(float), None
    def recorded(test):
        def run(*args, **kwargs):
            result = test(*args, **kwargs)
            if result.pvalue > 1e-9: p_values[now].append(result.pvalue)
            return result
        return run
    for name in ("ks_2samp", "kstest"): setattr(scipy.stats, name, recorded(getattr(scipy.stats, name)))
    modules = {m: importlib.import_module(m) for m in TESTS}
    for Seeds.shift in range(first, seeds + 1):
        for module, names in TESTS.items():
            for name in names.split():
                function, now, start = getattr(modules[module], f"test_{name}"), f"{module}: {name}", time.perf_counter()
                for arguments in cases(function):
                    if "size" in inspect.signature(function).parameters: arguments["size"] = samples
                    try: function(**arguments)
                    except AssertionError as e: failures[now].append((Seeds.shift, arguments, str(e)[:200]))
                seconds[now] += time.perf_counter() - start
        if "--progress" in sys.argv: print(Seeds.shift, {k: len(v) for k, v in failures.items()}, round(sum(seconds.values())), flush=True)
    print(f"seeds {first}…{seeds}, {samples} samples\n{'test':76s}{'p-values':>10s}{'smallest':>12s}{'failures':>10s}{'s/seed':>8s}")
    for name in seconds: print(f"{name:76s}{len(p_values[name]):10d}{min(p_values[name], default=np.nan):12.1e}{len(failures[name]):10d}{seconds[name]/(seeds - first + 1):8.2f}")
    everything = np.concatenate([*p_values.values()])
    print(f"in all {everything.size} p-values, smallest {everything.min():.1e}, {sum(map(len, failures.values()))} failures")
    for name, found in failures.items():
        for f in found[:5]: print(name, *f)

if __name__ == "__main__": main(*(int(a) for a in sys.argv[1:] if a.isdigit()))
