"""A file is written completely or not at all."""

import os
import subprocess
import sys

import pytest

from infattn_nb.numerics.files import typed_text, write


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


def test_a_text_is_utf8_in_every_locale():
    "In the C locale Python keeps bytes that it cannot decode as surrogates."
    typed = "the cät".encode().decode("ascii", "surrogateescape")
    assert typed_text(typed, "text") == "the cät"
    assert typed_text("the cät", "text") == "the cät"
    assert typed_text(None, "text") is None
    with pytest.raises(ValueError, match="`--text` must be UTF-8"):
        typed_text(b"c\xe4t".decode("ascii", "surrogateescape"), "text")
