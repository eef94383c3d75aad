"""Signatures of the messages of managers: verified with the public keys of ``broker.verify_keys_file``."""

import hashlib
import heapq
import logging
import re
import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HEADER = "everwatch-signature"
# How the reason begins for which a service parks a message that it refuses.
PARKED_AS = "not from a manager: "
# Seconds before and after the time of this machine in which a command is accepted.
VALID_FOR = 300.0
_READ_EVERY = 5.0
_KEYS_MAX = 100
# The most commands that are remembered to refuse copies of them.
_SEEN_MAX = 100_000
_CURE = "write the public key of each signing key into it, as `openssl pkey -in KEY -pubout` prints it"
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_SIGNATURE = re.compile(r"([0-9a-f]{16})\.([0-9]{1,15})\.([A-Za-z0-9_-]{86})")

logger = logging.getLogger("everwatch")


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a message is not from a manager: a word for reports, and a sentence."""

    code: str
    why: str


_UNSIGNED = Refused("unsigned", "it has no signature")
_MALFORMED = Refused("malformed", "its signature is malformed")
ALTERED = Refused("altered", "its signature does not fit: it was altered, or copied from another queue")
_NOT_CURRENT = Refused(
    "not-current", f"it was signed more than {VALID_FOR:.0f} s before or after the time of this machine"
)
_REPLAYED = Refused("replayed", "it is a copy of an earlier command")


def _unknown(key: str) -> Refused:
    return Refused("unknown-key", f"it is signed with the key {key}, which broker.verify_keys_file does not have")


def signed_bytes(exchange: str, routing_key: str, at: int, body: bytes) -> bytes:
    """What is signed: the way of the message, the time in milliseconds, and the body."""
    return f"everwatch-signature-1\n{exchange}\n{routing_key}\n{at}\n".encode() + body


def _read(file: str) -> "dict[str, Ed25519PublicKey]":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            PublicFormat,
            load_pem_public_key,
        )
    except ImportError as error:
        raise ValueError("needs the package cryptography: pip install 'everwatch[signatures]'") from error
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {file}: {error}") from error
    if "PRIVATE KEY" in text:
        raise ValueError(f"{file} contains a private key, which only managers may have: {_CURE}")
    keys: dict[str, Ed25519PublicKey] = {}
    for pem in _PEM.findall(text):
        try:
            key = load_pem_public_key(pem.encode())
        except ValueError as error:
            raise ValueError(f"{file} cannot be read ({error}): {_CURE}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"{file} has a key that is not Ed25519: {_CURE}")  # noqa: TRY004 - it is about the file
        raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        keys[hashlib.sha256(raw).hexdigest()[:16]] = key
    if not keys:
        raise ValueError(f"{file} has no public key: {_CURE}")
    if len(keys) > _KEYS_MAX:
        raise ValueError(f"{file} has more than {_KEYS_MAX} keys: remove those with which no message is signed")
    return keys


@dataclass(slots=True)
class _Seen:
    """Refuses copies of commands."""

    seen: set[tuple[int, bytes]] = field(default_factory=set)
    oldest: list[tuple[int, bytes]] = field(default_factory=list)
    # Signatures before this time are no longer remembered.
    floor: int = 0

    def refusal(self, at: int, signature: bytes, now: int) -> Refused | None:
        valid = int(VALID_FOR * 1000)
        if abs(now - at) > valid or at < self.floor:
            return _NOT_CURRENT
        while self.oldest and now - self.oldest[0][0] > valid:
            self.seen.discard(heapq.heappop(self.oldest))
        entry = (at, signature[:32])
        if entry in self.seen:
            return _REPLAYED
        self.seen.add(entry)
        heapq.heappush(self.oldest, entry)
        if len(self.oldest) > _SEEN_MAX:
            first = heapq.heappop(self.oldest)
            self.seen.discard(first)
            self.floor = first[0] + 1
        return None


class Verifier:
    """Verifies messages. The file with the keys is read again every 5 s."""

    def __init__(self, file: str) -> None:
        """Reads the file.

        Raises:
            ValueError: why the file cannot be used.
        """
        self._file = file
        self._keys = _read(file)
        self._read_at = time.monotonic()
        self._seen = _Seen()

    def _current(self) -> "dict[str, Ed25519PublicKey]":
        if time.monotonic() - self._read_at >= _READ_EVERY:
            self._read_at = time.monotonic()
            try:
                self._keys = _read(self._file)
            except ValueError as error:
                logger.warning("broker.verify_keys_file: %s; its last valid content stays in use", error)
        return self._keys

    def refusal(
        self, way: tuple[str, str], headers: Mapping[str, Any], body: bytes, *, is_command: bool
    ) -> Refused | None:
        """Why a message is refused. ``way``: the exchange and the routing key through which it came."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - the constructor has checked it

        text = headers.get(HEADER)
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        if not isinstance(text, str):
            return _UNSIGNED
        parts = _SIGNATURE.fullmatch(text)
        if parts is None:
            return _MALFORMED
        try:
            signature = urlsafe_b64decode(parts[3] + "==")
        except Base64Error:
            return _MALFORMED
        key = self._current().get(parts[1])
        if key is None:
            return _unknown(parts[1])
        at = int(parts[2])
        try:
            key.verify(signature, signed_bytes(*way, at, body))
        except InvalidSignature:
            return ALTERED
        return self._seen.refusal(at, signature, time.time_ns() // 1_000_000) if is_command else None
