import matplotlib.pyplot as plt
import pytest
from report_cases import WORDS, small

from infattn_nb import report as draw_report
from infattn_nb.initialisation.report import file_of


@pytest.fixture(scope="session")
def report():
    return draw_report(small(var_q=9.0), 48, 12, 5, labels=WORDS, title="a <small> one")


@pytest.fixture(scope="session")
def page(report):
    return file_of(report, "html").decode()


@pytest.fixture
def silent(monkeypatch):
    "A picture that shows itself would stop a script."
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("plt.show was called"))
