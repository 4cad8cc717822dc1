from .quantities import Thresholds as Thresholds
from .rules import with_rule as with_rule
from .scan import Scan as Scan
from .report import Report as Report
from .report_command import infattn_report as infattn_report

__all__: list[str]
