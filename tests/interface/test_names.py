"""One name for one thing: what public parameters are called.

Each name on the right is a second one for the thing on the left. Where it means
something else it stands in `OTHER_MEANINGS`, with what it means there.
"""

import inspect
import typing

from public import PUBLIC


SECOND_NAMES = {
    "rng": {"seed"},
    "size": {"networks", "n_samples"},
    "draws": {"paths", "samples", "replicates", "trials"},
    "learning_rate": {"rate", "rates"},
    "init": {"start"},
    "optimizer": {"method"},
    "activation": {"fn", "phi"},
    "seq_len": {"s", "tokens"},
    "layers": {"depth", "blocks"},
    "dense": {"explicit", "exact"},
    "verbose": {"progress", "quiet"},
    "texts": {"tokens"},
}
OTHER_MEANINGS = {
    "the law of tokens": {("Attention", "tokens"), ("fluctuations", "tokens")},
    "a list of blocks, not how many": {("Transformer", "blocks")},
    "a method of the network, by name": {("Transformer.per_block", "method")},
    "the function that makes an activation": {("Nonlinearity", "fn")},
    "no approximation of the tokens' function": {
        (f"{of}.{method}", "exact")
        for of in ("Attention", "Tokens", "CommonTokens", "ProgramTokens")
        for method in ("law", "scores", "gram", "sampled")
    },
    "independent quadratures of one law": {("ScaleMixture", "replicates")},
    "the paper's protocol: trials of so many samples": {
        (name, word)
        for name in ("explicit_seconds", "infattn_figures", "kde", "kde_trials")
        + ("noise_floor", "reproduce", "smoothed", "sweep")
        for word in ("samples", "trials")
    },
    "options of a command": {
        (name, word)
        for name in ("infattn_figures", "infattn_report", "infattn_train")
        for word in ("seed", "quiet", "tokens")
    },
    "losses before training, not where it begins": {("RateTransfer", "start")},
    "scikit-learn's word": {("AttentionRegressor.sample_y", "n_samples")},
}


def public_parameters():
    "(function, parameter) of public functions, classes and their public methods."
    for name, thing in PUBLIC.items():
        callables = {name: thing}
        if inspect.isclass(thing):
            methods = inspect.getmembers(thing, callable)
            callables |= {f"{name}.{m}": f for m, f in methods if m[0] != "_"}
        for of, f in callables.items():
            try:
                parameters = inspect.signature(f).parameters
            except (TypeError, ValueError):
                continue
            for parameter in parameters:
                yield of, parameter


def second_names(parameters, allowed):
    "Those that bear the second name of something."
    words = set().union(*SECOND_NAMES.values())
    found = {p for p in parameters if p[1] in words}
    return found - set().union(*allowed.values())


def test_one_name_for_one_thing():
    found = set(public_parameters())
    assert len(found) > 500
    assert not second_names(found, OTHER_MEANINGS)


def test_no_other_meaning_is_out_of_date():
    "Of each meaning one parameter is there at least."
    found = set(public_parameters())
    for meaning, parameters in OTHER_MEANINGS.items():
        assert parameters & found, meaning


def functions_of(thing):
    "A public function, or the documented methods of a public class."
    if inspect.isfunction(thing):
        return [thing]
    return [
        m
        for name, m in vars(thing).items()
        if inspect.isfunction(m) and not name.startswith("_")
    ]


WITH_ERROR = {
    f"{function.__module__}.{function.__qualname__}": function
    for thing in PUBLIC.values()
    if inspect.isclass(thing) or inspect.isfunction(thing)
    for function in functions_of(thing)
    if "return_error" in inspect.signature(function).parameters
}


def test_an_editor_knows_what_comes_with_an_error():
    """`return_error` is keyword-only, and its two results are declared as overloads, or
    for all methods of a law of one output, or all distances, at once.
    """
    assert len(WITH_ERROR) >= 30
    for name, function in WITH_ERROR.items():
        flag = inspect.signature(function).parameters["return_error"]
        assert flag.kind is flag.KEYWORD_ONLY, name
        bare = inspect.unwrap(function)
        declared = typing.get_overloads(bare)
        at_once = name.startswith("scipy.") or "LawWithErrors" in name
        at_once |= "ScaleMixture" in name or ".distances." in name
        returned = inspect.signature(function).return_annotation
        assert len(declared) == 2 or at_once or returned is dict, name
