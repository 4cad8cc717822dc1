from .report_command import infattn_report as infattn_report

__all__: list[str]
