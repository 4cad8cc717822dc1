"""Public records check every field, and all their attributes can be looked at."""

import dataclasses
import inspect

import numpy as np
import pytest
from examples import EXAMPLES, ONE_SENTENCE, OTHERS
from public import PUBLIC


def is_record(kind):
    if not inspect.isclass(kind):
        return False
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    return frozen or issubclass(kind, tuple)


def test_no_public_record_is_forgotten():
    records = {name for name, kind in PUBLIC.items() if is_record(kind)}
    assert records == set(EXAMPLES)
    classes = {name for name, kind in PUBLIC.items() if inspect.isclass(kind)}
    assert classes - records == {name.split(",")[0] for name in OTHERS}


def fields_of(record):
    return [f.name for f in dataclasses.fields(record) if f.init and f.name[0] != "_"]


SIGNED = {"skip_scale", "branch_scale", "score_scale", "max_cosine"}
SIGNED |= {"divergence", "divergence_error", "error"}  # measured


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.long
def test_every_field_of_a_record_is_checked(name):
    "By an object, an array of seven axes without a number in it, and −1 for a number."
    record = EXAMPLES[name]()
    assert type(record) in (PUBLIC[name], *PUBLIC[name].__subclasses__())
    for field in fields_of(record):
        again = dataclasses.replace(record, **{field: getattr(record, field)})
        assert repr(again) == repr(record), field
        number = type(getattr(record, field)) in (int, float) and field not in SIGNED
        for wrong in (object(), np.full((2,) * 7, np.nan), *[-1] * number):
            with pytest.raises((TypeError, ValueError)) as error:
                dataclasses.replace(record, **{field: wrong})
            assert ONE_SENTENCE.fullmatch(str(error.value)), (field, str(error.value))


@pytest.mark.parametrize("name", [*EXAMPLES, *OTHERS])
@pytest.mark.filterwarnings("error")
@pytest.mark.long
def test_everything_can_be_looked_at(name):
    "By dir, hasattr and inspect.getmembers, as editors and debuggers do."
    thing = (EXAMPLES | OTHERS)[name]()
    for attribute in dir(thing):
        hasattr(thing, attribute)
    assert dict(inspect.getmembers(thing))
