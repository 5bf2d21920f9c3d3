"""PO-10: the arguments of `tls_files`, and what is loaded from files."""

from __future__ import annotations

import pytest
import trustme

from grpc_backoff import OptionError, tls_files
from grpc_backoff.config.credentials import TLSFiles, UnusableFilesError, load_files
from tests.texts import begins


@pytest.fixture
def files(tmp_path):
    """The files of a CA and of a client's certificate and key."""
    authority = trustme.CA()
    issued = authority.issue_cert("client@example.org")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "certificate", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    issued.cert_chain_pems[0].write_to_path(paths["certificate"])
    issued.private_key_pem.write_to_path(paths["key"])
    return paths


def test_defaults():
    """PO-10: files are checked every minute, unless the program says otherwise."""
    assert tls_files("ca.pem") == TLSFiles("ca.pem", None, None, 60.0)
    assert tls_files(certificate="a", key="b", check_every=5) == TLSFiles(None, "a", "b", 5.0)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "ca=None: expected the path of a file, unless certificate and key are given"),
        ({"ca": ""}, "ca='': expected the path of a file"),
        ({"ca": b"ca.pem"}, "ca=b'ca.pem': expected the path of a file"),
        ({"ca": 1}, "ca=1: expected the path of a file"),
        ({"certificate": "a"}, "key=None: expected the path of a file, because certificate is given"),
        ({"key": "a"}, "certificate=None: expected the path of a file, because key is given"),
        ({"ca": "a", "check_every": 0}, "check_every=0: expected a finite number of seconds above 0"),
        ({"ca": "a", "check_every": float("inf")}, "check_every=inf: expected a finite number of seconds above 0"),
    ],
)
def test_arguments(given, text):
    """CH-10: wrong arguments raise an error that names the value and what was expected."""
    with pytest.raises(OptionError, match=begins(text)):
        tls_files(**given)


def test_loaded(files):
    """PO-10: the digest changes with the contents, and only with them."""
    first = load_files(tls_files(**files))
    assert load_files(tls_files(**files)).digest == first.digest
    trustme.CA().cert_pem.write_to_path(files["ca"])
    assert load_files(tls_files(**files)).digest != first.digest
    assert load_files(tls_files(files["ca"])).digest != load_files(tls_files(**files)).digest


ENCRYPTED = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgNbKJvDbnUHQICCAAw
-----END ENCRYPTED PRIVATE KEY-----
"""


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
@pytest.mark.parametrize("how", ["missing", "empty", "half", "encrypted"])
def test_unusable(files, name, how):
    """PO-10: files that are missing, empty, half-written or encrypted are reported; nobody is asked for a password."""
    content = files[name].read_bytes()
    files[name].unlink()
    if how != "missing":
        files[name].write_bytes({"empty": b"", "half": content[: len(content) // 2], "encrypted": ENCRYPTED}[how])
    texts = {
        "ca": "is not a PEM file of certificates",
        "certificate": "are not a certificate and its unencrypted key",
        "key": "are not a certificate and its unencrypted key",
    }
    with pytest.raises(UnusableFilesError) as caught:
        load_files(tls_files(**files))
    expected = "cannot be read: No such file or directory" if how == "missing" else texts[name]
    assert str(caught.value).endswith(expected)


def test_key_of_another_certificate(files):
    """PO-10: a key that does not match its certificate is not used."""
    trustme.CA().issue_cert("client@example.org").private_key_pem.write_to_path(files["key"])
    with pytest.raises(UnusableFilesError, match=r"are not a certificate and its unencrypted key$"):
        load_files(tls_files(**files))
