"""Odd arguments of every public callable: each gives a result or one sentence.

The callables are found by introspection, and a new one is tried without being asked.
Each call takes good values (by the name of the parameter, otherwise by whatever the
callable accepts) and spoils one of them.
"""

import inspect
import re
import signal
import warnings
from contextlib import contextmanager

import matplotlib.pyplot as plt
import numpy as np
import pytest
from examples import EXAMPLES, LAYER, NET, OTHERS
from public import PUBLIC

import infattn_nb as ia
from infattn_nb.nonlinearities import relu, tanh

SECONDS = 20  # a call that takes longer has begun to work
SENTENCE = re.compile(r"`[^\n]+ must [^\n]+; [^\n]+")
SMALL = "draws", "only", "rng", "samples", "size", "steps", "trials", "verbose"
BEYOND_ANY_COMPUTER = "a huge float", "almost the largest float", "a huge integer"


class ZeroDimensional:
    "A tensor of torch without axes, as far as the package looks."

    def __init__(self, x):
        self.x = np.asarray(x)

    def detach(self):
        return self

    cpu = numpy = detach

    def __array__(self, dtype=None, copy=None):
        return self.x if dtype is None else self.x.astype(dtype)


HOSTILE = {
    "a huge float": 1e30,
    "almost the largest float": 1e308,
    "a huge integer": 10**400,
    "a huge size": (10**9, 10**9),
    "-1": -1,
    "zero": 0,
    "nan": np.nan,
    "infinity": np.inf,
    "a ragged list": [[1.0], [2.0, 3.0]],
    "nested None": [[None, [None]]],
    "complex numbers": np.array([1 + 2j, 3.0]),
    "a complex number": 1j,
    "a tensor without axes": ZeroDimensional(0.5),
    "a tensor of a complex number": ZeroDimensional(1j),
    "a word": "foo",
    "bytes": b"foo",
    "nothing": [],
    "None": None,
    "an object": object(),
    "an array of objects": np.array([object(), None]),
    "a dict": {"a": 1},
    "a set": {1, 2},
    "a lambda": lambda *a, **k: None,
    "seven axes": np.full((2,) * 7, np.nan),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "True": True,
}


def _program():
    p = ia.Program()
    W, R = p.matrix(), p.readout()
    return p, [R @ relu(W @ v) for v in p.inputs(np.eye(2))]


def good():
    "Good values by the name of a parameter; made anew, since some can be changed."
    p, f = _program()
    law = LAYER.law(8)
    y = LAYER.law().marginal(0)
    return dict(
        activation=relu,
        activations=[relu],
        alpha=0.5,
        base_width=4,
        cov=np.eye(2),
        config="gpt2",
        draws=64,
        fn=tanh,
        f=f,
        outputs=f,
        program=p,
        layer=LAYER,
        law=law,
        limit=y,
        p=y,
        q=ia.ScaleMixture([1.0, 2.0]),
        heads=2,
        head_width=4,
        inputs=[f[0]],
        i=0,
        k=2.0,
        layers=1,
        learning_rate=0.1,
        learning_rates=[0.1],
        name="fig1a",
        net=NET,
        network=NET,
        transformer=NET,
        number=3,
        rng=0,
        samples=64,
        only="fig2a",
        samples_p=[0.0, 1.0, 2.0],
        samples_q=[0.0, 1.5, 2.0],
        grid=[0.0, 1.0],
        score_sd=1.0,
        seq_len=4,
        size=3,
        steps=2,
        t=1.0,
        text="abc",
        texts=["abc"],
        tokens=ia.Tokens(2, relu),
        trials=2,
        variances=[1.0, 2.0],
        verbose=False,
        width=8,
        x=[0.5],
        y=[0.5, 0.1],
        verify=False,
        X=np.ones((3, 2)),
        statistic=np.sum,
        rules="gpt2",
        correlation=0.3,
        ρ=0.3,
        queries=2,
        keys=2,
    )


def parameters(call):
    "The names of the parameters that can be given by keyword, and those required."
    try:
        found = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    named = [
        p for p in found if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    ]
    if any(p.kind == kinds.POSITIONAL_ONLY for p in found):
        return None
    return [p.name for p in named], [p.name for p in named if p.default is p.empty]


def methods(kind):
    "The methods of a class that document their parameters, or have none."
    for word in getattr(kind, "_shown", dir(kind)):
        method = inspect.unwrap(getattr(kind, word, None) or kind)
        ours = (getattr(method, "__module__", "") or "").startswith("infattn_nb")
        if word[0] == "_" or not ours or not inspect.isfunction(method):
            continue
        documented = "Parameters\n" in (method.__doc__ or "")
        if documented or method.__code__.co_argcount == 1:
            yield word


def callables():
    "name -> () -> the callable; methods belong to a fresh object each time."
    for name, thing in PUBLIC.items():
        if callable(thing) and not name.startswith("infattn_"):
            yield name, lambda thing=thing: thing
    for name, make in (EXAMPLES | OTHERS).items():
        for word in methods(PUBLIC[name]) if name in PUBLIC else ():
            yield f"{name}.{word}", lambda m=make, word=word: getattr(m(), word)


@contextmanager
def no_longer_than(seconds):
    def stop(*_):
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def faults(make, names, required):
    "What is raised by one spoiled argument after another, if it is not one sentence."
    for name in names:
        for kind, wrong in HOSTILE.items():
            values = good()
            given = {word: values.get(word, wrong) for word in required}
            given |= {word: values[word] for word in names if word in SMALL}
            given[name] = wrong
            try:
                with no_longer_than(SECONDS), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    make()(**given)
            except (TypeError, ValueError) as error:
                if type(error).__module__ == "builtins" and not SENTENCE.match(
                    str(error)
                ):
                    yield f"{name} = {kind}: {type(error).__name__}: {str(error)[:150]}"
            except TimeoutError:
                if kind in BEYOND_ANY_COMPUTER:
                    yield f"{name} = {kind}: more than {SECONDS} s"
            except (NotImplementedError, OSError):  # a file that is not there
                pass
            except Exception as error:
                yield f"{name} = {kind}: {type(error).__name__}: {str(error)[:150]}"
            finally:
                plt.close("all")


CALLABLES = dict(callables())


@pytest.mark.slow
@pytest.mark.parametrize("place", CALLABLES)
def test_odd_arguments_give_a_result_or_one_sentence(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    make = CALLABLES[place]
    if place.endswith(".predict_proba"):
        pytest.skip(
            "the examples are not of classes; `predict` takes the same argument"
        )
    found = parameters(make())
    if found is None:
        pytest.skip("its parameters have no names")
    assert not list(faults(make, *found))
