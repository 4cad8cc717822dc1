"""A small figure, and how many trials a call computes."""

from infattn_nb.paper import reproduce, tables

SMALL = dict(trials=2, samples=100)


def computed(out, monkeypatch, run=tables.Job.run, **options):
    "How many trials a call computes."
    jobs = []
    with monkeypatch.context() as m:
        m.setattr(tables.Job, "run", lambda job: jobs.append(job) or run(job))
        reproduce(out, "fig2a", **SMALL | options)
    return len(jobs)
