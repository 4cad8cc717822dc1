from .families import families_table as families_table

__all__: list[str]
