"""Client certificates with bytes overwritten, as far as OpenSSL takes them for certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import assume, given
from hypothesis import strategies as st
from OpenSSL import crypto

from ovirt_scheduler.security.tls_clients import Clients, subject_of
from tests.support.certificates import made
from tests.support.fuzzing import assert_told, bounded, tries

ROOT = made(["root"], authority=True)
CERTIFICATES = [
    made(names, ROOT).certificate.public_bytes(Encoding.DER)
    for names in (["engine"], ["engine", "other"], ["a,b=c"], ["\u202e\0\n"], ["\U0001f600" * 16])
]
VERSION_3, VERSION_49 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x30"
# Kinds of strings, lengths, object identifiers, UTF-8 and UTF-16 that are none.
TOKENS = [
    *(bytes([byte]) for byte in (0, 1, 6, 9, 12, 18, 19, 20, 22, 28, 30, 48, 49, 127, 128, 255)),
    *(b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x06", b"\x0c\x01a", b"\x0c\0", b"\x02\x01\xff"),
    *(b"\xed\xa0\x80", b"\x1e\x02\xd8\x00", b"\xe2\x80\xa8", VERSION_49),
]
SUBJECT_ENDS = 260  # bytes from the beginning
CLIENTS = Clients(Path("/nowhere"), allowed=("engine", "CN=engine,O=Example"))


@st.composite
def certificates(draw: st.DrawFn) -> bytes:
    """Overwritten, not lengthened: the parts stay where the lengths say that they are."""
    data = draw(st.sampled_from(CERTIFICATES))
    for _ in range(draw(st.integers(0, 3))):
        token, start = draw(st.sampled_from(TOKENS)), draw(st.integers(0, SUBJECT_ENDS))
        data = data[:start] + token + data[start + len(token) :]
    return data


@pytest.mark.filterwarnings("ignore")  # cryptography's, of what it reads all the same
@tries(300)
@given(certificates())
def test_a_subject_name_is_told_and_held_to_the_names_allowed(data: bytes) -> None:
    """Whatever the certificate says of itself: one line, and let in or not."""
    try:
        certificate = crypto.load_certificate(crypto.FILETYPE_ASN1, data)
    except crypto.Error:
        assume(False)
        return
    with bounded():
        subject = subject_of(certificate)
        assert_told(subject)
        if CLIENTS._allows(certificate, subject):
            assert b"engine" in data


def test_a_certificate_of_a_version_that_there_is_not() -> None:
    """OpenSSL hands it over, so it must have a name in the log."""
    data = CERTIFICATES[0].replace(VERSION_3, VERSION_49)
    certificate = crypto.load_certificate(crypto.FILETYPE_ASN1, data)
    assert subject_of(certificate) == "with a subject name that cannot be read"
    assert not CLIENTS._allows(certificate, subject_of(certificate))


def test_a_certificate_whose_name_is_no_text() -> None:
    """It is refused, and has a name in the log, too: older versions of cryptography raise KeyError."""
    data = CERTIFICATES[0].replace(b"\x0c\x06engine", b"\x09\x06engine")
    certificate = crypto.load_certificate(crypto.FILETYPE_ASN1, data)
    assert subject_of(certificate) == "with a subject name that cannot be read"
    assert not CLIENTS._allows(certificate, subject_of(certificate))
