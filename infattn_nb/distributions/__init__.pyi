from .distances import kde as kde, kde_trials as kde_trials

__all__: list[str]
