"Whoever computes the blocks, the bytes are the same; nothing needless is kept."

import gc
import io
import os
import signal
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import redirect_stderr
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from threading import Timer, active_count, current_thread

import numpy as np
import pytest
from conftest import nightly

from infattn_nb import Attention, HierarchicalGaussian, Program, ScaleMixture, Tokens
from infattn_nb import paired_kl, simulate
from infattn_nb.attention import simulate_dense
from infattn_nb.convergence import rademacher, simulate_weights, tied_scores
from infattn_nb.netsor import mlp
from infattn_nb.nonlinearities import clip, relu
from infattn_nb.numerics import draw, fold, parallel
from infattn_nb.numerics.rng import BLOCK
from infattn_nb.numerics.workers import TASKS_AHEAD, _workers, in_order
from infattn_nb.paper import sweep

pytestmark = pytest.mark.xdist_group("executors")  # its fixtures are made once
TOKENS = Tokens(3, relu)
LAYER = Attention(TOKENS, heads=2, mask="causal")
SAMPLERS = {
    "rvs": LAYER.law(5).rvs,
    "covariances": LAYER.law(5).covariances,
    "limit": LAYER.law().rvs,
    "low rank": Attention(TOKENS, heads=2, head_width=2).law(4).rvs,
    "one output": LAYER.law(5).marginal(0, draws=16).rvs,
    "one output of the limit": LAYER.law().marginal(0).rvs,
    "mixture": ScaleMixture([0.5, 1.5]).rvs,
    "Gaussian": HierarchicalGaussian.constant(np.eye(2)).rvs,
    "scores": partial(LAYER.scores, 5),
    "gram": partial(TOKENS.gram, 5),
    "clipped gram": partial(Tokens(2, clip(1.0)).gram, 5),
    "dense": partial(simulate_dense, LAYER, 3),
}


def by(workers, f, *args, **options):
    "f, computed by these workers."
    with parallel(workers):
        return f(*args, **options)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.long
def test_same_bytes_from_threads_and_processes(name, processes):
    sampler, size = SAMPLERS[name], 2 * BLOCK + 100
    first, *others = (
        by(workers, sampler, size, rng=3).tobytes()
        for workers in (1, 4, None, processes)
    )
    assert all(first == other for other in others)


@pytest.mark.long
def test_same_divergence_and_marginal_from_anybody(processes):
    one, two = (
        by(workers, paired_kl, LAYER, 5, draws=10_000, rng=1)
        for workers in (1, processes)
    )
    assert one == two
    np.testing.assert_array_equal(
        *(
            by(workers, LAYER.law(5).marginal, 1, 10_000).variances
            for workers in (1, processes)
        )
    )


def test_fold_reduces_the_samples_of_rvs(processes):
    law, size = LAYER.law(5), 3 * BLOCK + 1
    for law in (LAYER.law(5), LAYER.law(5).marginal(0, draws=16)):
        y = law.rvs(size, rng=2)
        np.testing.assert_allclose(
            by(processes, law.fold, partial(np.sum, axis=0), size, rng=2),
            y.sum(0),
            rtol=1e-9,
        )
        assert law.fold(np.max, size, rng=2, combine=max) == y.max()
        np.testing.assert_array_equal(
            law.fold(
                np.asarray, size, rng=2, combine=lambda a, b: np.concatenate([a, b])
            ),
            y,
        )  # in block order
        assert law.fold(len, size, rng=2) == size


def test_folding_keeps_nothing():
    tracemalloc.start()
    peaks = []
    for size in (10**5, 10**6):
        tracemalloc.reset_peak()
        fold(_normals, np.sum, size, rng=0)
        gc.collect()
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1e6  # the samples alone would take 7e6 bytes more


def _normals(n, g):
    return g.standard_normal(n)


def test_few_blocks_wait_at_a_time():
    "No more than TASKS_AHEAD blocks are computed before the first has been used."
    started = []

    def sample(n, g):
        return started.append(n) or g.standard_normal(1)

    def combine(a, b):
        if len(seen) == 0:
            seen.append(len(started))
        return a + b

    seen = []
    fold(sample, np.sum, 500 * BLOCK, rng=0, combine=combine)
    assert seen[0] <= TASKS_AHEAD + 2
    assert len(started) == 500


def test_an_error_reaches_the_caller_and_stops_the_rest():
    calls = []

    def sample(n, g):
        calls.append(n)
        raise ArithmeticError("third law")

    before = active_count()
    with pytest.raises(ArithmeticError, match="third law"):
        draw(sample, 10**6, rng=0)
    assert len(calls) <= TASKS_AHEAD
    assert active_count() == before


def test_no_pools_within_pools():
    "A sampler called from a task computes in the thread it is in."
    counts = []

    def sample(n, g):
        counts.append(active_count())
        return LAYER.law(5).rvs(2 * BLOCK, g)[:1]

    fold(sample, np.sum, 4 * BLOCK, rng=0)
    assert max(counts) <= active_count() + os.cpu_count()


def test_a_thread_of_the_users_own_pool_does_not_wait_for_it():
    law = LAYER.law(5)
    with ThreadPoolExecutor(1) as pool:
        mine = pool.submit(by, pool, law.rvs, 3 * BLOCK, 0)
        np.testing.assert_array_equal(mine.result(timeout=60), law.rvs(3 * BLOCK, 0))


def test_a_pool_does_not_wait_for_itself():
    "A task that chooses the pool it runs in computes in that thread."
    law = LAYER.law(5)
    with ThreadPoolExecutor(2) as pool:
        inner = lambda y: by(pool, law.rvs, 2 * BLOCK, 0).sum()
        assert by(pool, law.fold, inner, 3 * BLOCK, 0) == pytest.approx(
            3 * law.rvs(2 * BLOCK, 0).sum(), rel=1e-12
        )


def test_a_choice_ends_with_its_block():
    "Also by an error; one within another; and no thread hears of that of another."
    with pytest.raises(ArithmeticError), parallel(3):
        raise ArithmeticError
    assert _workers() == os.cpu_count()
    with parallel(2), ThreadPoolExecutor(1) as pool:
        with parallel(pool):
            assert _workers() is pool
        with parallel(None):
            assert _workers() == os.cpu_count()
        assert _workers() == 2
        assert pool.submit(_workers).result() == 1
        assert pool.submit(by, 3, _workers).result() == 3


def test_one_worker_is_this_thread():
    with parallel(1):
        names = fold(
            _normals, lambda x: {current_thread().name}, 3 * BLOCK, 0, combine=set.union
        )
    assert names == {current_thread().name}


def test_threads_are_as_many_as_were_asked_for():
    before, counts = active_count(), []
    sample = lambda n, g: counts.append(active_count()) or g.standard_normal(n)
    with parallel(3):
        draw(sample, 9 * BLOCK, 0)
    assert max(counts) <= before + 3


def test_what_a_task_draws_stays_in_its_process(processes):
    "The parent's choice is not taken over, not by a fork either."

    def check(pool):
        with parallel(pool):
            assert set(in_order(_who_draws, [(k,) for k in range(4)])) == {1}
            assert pool.submit(_who_draws, 0).result(timeout=60) == 1

    check(processes)
    if "fork" in get_all_start_methods():
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            check(pool)


def _who_draws(_):
    return _workers()


FOUR = Attention(Tokens(4, relu))


def deep_network():
    p = Program()
    return simulate(p, mlp(p, p.inputs(np.eye(64)), layers=8), 1024, size=10**6)


LONG = {
    "explicit matrices": partial(simulate_dense, FOUR, 512, 10**5),
    "other weights": partial(simulate_weights, FOUR, rademacher, 512, size=10**5),
    "tied scores": partial(tied_scores, FOUR, 2**14, 10**6),
    "a program": deep_network,
}


def interrupted(call):
    """What a process reports that Control-C interrupts after .3 seconds: seconds until
    the call raises, until its threads have ended, and what was written to stderr.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threads = active_count()
    stop = Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    since = lambda: time.monotonic() - start - 0.3
    with redirect_stderr(io.StringIO()) as said:
        start = time.monotonic()
        stop.start()
        try:
            by(os.cpu_count(), call)
        except KeyboardInterrupt:
            answered = since()
        while active_count() > threads:
            time.sleep(0.01)
    return answered, since(), said.getvalue()


@pytest.mark.parametrize("name", nightly(LONG, *set(LONG) - {"explicit matrices"}))
def test_control_c_is_answered_at_once(name, processes):
    "The caller hears at once; the threads end at their next piece."
    answered, ended, said = processes.submit(interrupted, LONG[name]).result(300)
    assert answered < 10
    assert ended < 30
    assert not said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cluster_with_a_worker_killed():
    "Two dask workers, one killed in the middle: the run completes with the same bytes."
    distributed = pytest.importorskip("distributed")
    law, size = Attention(Tokens(4, relu), heads=2).law(32), 150 * BLOCK
    killed = []

    def combine(a, b):
        if not killed:
            killed.append(next(iter(cluster.workers.values())).process.pid)
            os.kill(killed[0], signal.SIGKILL)
        return a + b

    with (
        distributed.LocalCluster(
            2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len(client.nthreads()) == 2
        total = partial(law.fold, partial(np.sum, axis=0), size, rng=0)
        result = by(client.get_executor(), total, combine=combine)
        np.testing.assert_array_equal(result, total())
        assert killed[0] not in client.run(os.getpid).values()
        tables = [
            by(workers, sweep, "fig2a", trials=2, samples=64)
            for workers in (client.get_executor(), None)
        ]
        for c in tables[0]:
            assert tables[0][c].tobytes() == tables[1][c].tobytes()
