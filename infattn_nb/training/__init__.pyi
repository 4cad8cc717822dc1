from .programs import Training as Training, train as train

__all__: list[str]
