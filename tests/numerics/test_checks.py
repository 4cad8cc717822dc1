"""What counts as rounding is forgiven, and nothing else; memory that may be used."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from infattn_nb import *
from infattn_nb.convergence import *
from infattn_nb.netsor import *
from infattn_nb.nonlinearities import *
from infattn_nb.numerics import *
from infattn_nb.numerics import checks
from infattn_nb.paper import *
from infattn_nb.theory import *


def test_rounding_is_forgiven():
    checks.cov(np.diag([1, -1e-13]))
    checks.cov([[1, 0.5 + 1e-14], [0.5, 1]])


GROUPS = {  # files under / -> the limit
    "version 2": (
        {"": "max", "a": "3000", "a/b": "4000"},
        "0::/a/b",
        "memory.max",
        3000,
    ),
    "version 2, container": ({"": "2000"}, "0::/", "memory.max", 2000),
    "version 2, path of the host": ({"": "2000"}, "0::/x/y", "memory.max", 2000),
    "version 1": (
        {"": str(2**63 - 4096), "a": "5000"},
        "4:cpu,memory:/a\n3:pids:/",
        "memory.limit_in_bytes",
        5000,
    ),
    "no limit": ({"": "max"}, "0::/", "memory.max", None),
    "another controller": ({"a": "7"}, "4:pids:/a", "memory.limit_in_bytes", None),
}


@pytest.mark.parametrize("name", GROUPS)
def test_memory_of_a_control_group(name, tmp_path, monkeypatch):
    "The least of the limits of a group and of those above it."
    limits, line, file, wanted = GROUPS[name]
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(line + "\n")
    top = tmp_path / "sys/fs/cgroup" / ("" if file == "memory.max" else "memory")
    for group, limit in limits.items():
        (top / group).mkdir(parents=True, exist_ok=True)
        (top / group / file).write_text(limit + "\n")
    monkeypatch.setattr(checks, "_of_process", lambda: None)
    free = checks._installed()
    assert checks.memory_of_the_machine(tmp_path) == (wanted or free)
    assert checks.memory_of_the_machine(tmp_path / "nothing") == free


def test_memory_limit_of_the_process():
    "A process with a limit of its own reports it."
    resource = pytest.importorskip("resource")
    code = (
        "from infattn_nb.numerics import checks; print(checks.memory_of_the_machine())"
    )
    least = 2**32
    command = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({least},)*2); "
    run = [sys.executable, "-c", command + code]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(least, checks.memory_of_the_machine())
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != least


def test_memory_of_windows(monkeypatch):
    "The second count of the structure that Windows fills."

    class Kernel:
        class kernel32:
            @staticmethod
            def GlobalMemoryStatusEx(status):
                assert status[0] == 64  # the structure's size, in its first half
                status[0] += 50 << 32  # percent in use
                status[1] = 12345
                return 1

    monkeypatch.setattr(ctypes, "windll", Kernel, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert checks._installed() == 12345
