"""A file is written completely or not at all."""

import os
import subprocess
import sys

import pytest

from infattn_nb.numerics.files import write


def test_a_file_is_complete_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "figure.csv"  # alone in its folder, also after failures
    write(path, b"old")
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(OSError, match=r"figure.csv cannot be written \(No space"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="no umask")
def test_files_have_the_rights_that_the_umask_gives(tmp_path):
    script = (
        f"import os; os.umask(0o077); "
        f"from infattn_nb.numerics.files import write; "
        f"write({str(tmp_path / 'file')!r}, b'text')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
