"""Signatures, with keys of openssl."""

import subprocess
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from everwatch import _signature
from everwatch._refusals import Refusals
from everwatch._settings import SettingsError, load
from everwatch._signature import HEADER, Refused, Verifier, signed_bytes
from everwatch._topology import Topology

WAY = ("e.work", "e.work.a")


def openssl(*arguments: str, text: str = "") -> str:
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, check=True)
    return done.stdout


class Keys:
    def __init__(self, folder: Path) -> None:
        self.private = openssl("genpkey", "-algorithm", "ed25519")
        self.public = openssl("pkey", "-pubout", text=self.private)
        self.file = folder / "verify"
        self.file.write_text(self.public)

    def sign(self, way: tuple[str, str], body: bytes, at: int | None = None) -> dict[str, str]:
        at = time.time_ns() // 1_000_000 if at is None else at
        key = load_pem_private_key(self.private.encode(), None)
        assert isinstance(key, Ed25519PrivateKey)
        encoded = urlsafe_b64encode(key.sign(signed_bytes(*way, at, body))).decode().rstrip("=")
        return {HEADER: f"{next(iter(_signature._read(str(self.file))))}.{at}.{encoded}"}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def code(refused: Refused | None) -> str:
    return "" if refused is None else refused.code


def test_only_what_a_manager_signed_for_this_way_is_genuine(keys: Keys, tmp_path: Path) -> None:
    verifier = Verifier(str(keys.file))

    def check(way: tuple[str, str], headers: dict[str, str], body: bytes) -> str:
        return code(verifier.refusal(way, headers, body, is_command=False))

    headers = keys.sign(WAY, b"body")
    assert check(WAY, headers, b"body") == ""
    assert check(WAY, headers, b"body") == "", "work may be redelivered"
    assert check(WAY, headers, b"bodY") == "altered"
    assert check(("e.work", "e.work.b"), headers, b"body") == "altered"
    assert check(("", "e.work.a"), headers, b"body") == "altered"
    assert check(WAY, {}, b"body") == "unsigned"
    assert check(WAY, {HEADER: "nonsense"}, b"body") == "malformed"
    (tmp_path / "other").mkdir()
    assert check(WAY, Keys(tmp_path / "other").sign(WAY, b"body"), b"body") == "unknown-key"


def test_a_command_is_genuine_once_and_while_it_is_current(keys: Keys) -> None:
    verifier, way = Verifier(str(keys.file)), ("e.commands.a", "all")
    headers = keys.sign(way, b"body")
    assert verifier.refusal(way, headers, b"body", is_command=True) is None
    assert code(verifier.refusal(way, headers, b"body", is_command=True)) == "replayed"
    now = time.time_ns() // 1_000_000
    for at, expected in [(now - 299_000, ""), (now + 299_000, ""), (now - 301_000, "not-current")]:
        assert code(verifier.refusal(way, keys.sign(way, b"body", at), b"body", is_command=True)) == expected


def test_what_is_no_longer_remembered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_signature, "_SEEN_MAX", 10)
    seen = _signature._Seen()
    for number in range(11):
        assert seen.refusal(1000 + number, b"s" * 64, 1000) is None
    assert len(seen.seen) == len(seen.oldest) == 10
    assert code(seen.refusal(1000, b"s" * 64, 1000)) == "not-current"
    assert code(seen.refusal(1010, b"s" * 64, 1000)) == "replayed"


def test_the_file_is_read_again_and_an_unusable_one_changes_nothing(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_signature, "_READ_EVERY", 0.0)
    verifier, old = Verifier(str(keys.file)), keys.sign(WAY, b"body")
    (tmp_path / "new").mkdir()
    new = Keys(tmp_path / "new")
    keys.file.write_text(keys.public + new.public)
    for headers in (old, new.sign(WAY, b"body")):
        assert verifier.refusal(WAY, headers, b"body", is_command=False) is None
    keys.file.write_text("half a fil")
    assert verifier.refusal(WAY, old, b"body", is_command=False) is None
    keys.file.write_text(new.public)
    assert code(verifier.refusal(WAY, old, b"body", is_command=False)) == "unknown-key"


@pytest.mark.parametrize(
    ("which", "word"), [("empty", "no public key"), ("private", "private key"), ("rsa", "not Ed25519")]
)
def test_an_unusable_file_names_the_key_and_the_cure(keys: Keys, tmp_path: Path, which: str, word: str) -> None:
    rsa = openssl("genpkey", "-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:2048")
    texts = {"empty": "", "private": keys.private, "rsa": openssl("pkey", "-pubout", text=rsa)}
    keys.file.write_text(texts[which])
    with pytest.raises(SettingsError, match=word) as raised:
        load(None, {"EVERWATCH_BROKER__VERIFY_KEYS_FILE": str(keys.file)})
    assert str(raised.value).startswith("broker.verify_keys_file: ")
    assert "-pubout" in str(raised.value)


def test_refusals_for_one_reason_are_reported_together_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refusals, refused = Refusals(), Refused("altered", "why")
    for _ in range(3):
        refusals.add("q", refused, None)
    expected = {"queue": "q", "reason": "altered", "count": 3, "detail": "why"}
    assert refusals.take() == [{"messages_refused": expected}]
    refusals.add("q", refused, None)
    assert refusals.take() == []
    now += 60.0
    assert refusals.take() == [{"messages_refused": expected | {"count": 1}}]
    assert refusals.take() == []


def test_a_signature_of_a_manager_fits(tmp_path: Path) -> None:
    """The test of managers verifies the same signature."""
    key = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
    file = tmp_path / "verify"
    file.write_text(f"-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n")
    signature = (
        "56475aa75463474c.1700000000000."
        "Gzj1yPYcVFr0M89SEncW7jUxr_FDXfDGvdPagl4GUgooDZ7IrYx3ROk0pTzrbNPxBzRRiAm834VOf5afWmQEDw"
    )
    way, headers = ("everwatch.work", "everwatch.work.default"), {HEADER: signature}
    assert Verifier(str(file)).refusal(way, headers, b'{"v":1}', is_command=False) is None


def test_a_queue_of_a_service_has_few_ways() -> None:
    topology, service = Topology("p.", 1), UUID(int=7)
    work, commands = topology.work("a"), topology.commands_of("a", service)
    assert topology.leads_to(("p.work", work), work)
    for way in [("p.work", "p.work.b"), ("p.commands.a", work), ("", work), ("p.work", "all"), ("p.commands", "")]:
        assert not topology.leads_to(way, work), way
    for way in [("p.commands.a", commands), ("p.commands.a", "all"), ("p.commands", "")]:
        assert topology.leads_to(way, commands), way
    of_b = topology.commands_of("b", service)
    for way in [("p.commands.b", of_b), ("p.commands.b", "all"), ("p.commands", "all"), ("p.work", commands)]:
        assert not topology.leads_to(way, commands), way
