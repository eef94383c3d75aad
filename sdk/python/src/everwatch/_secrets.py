"""References to secrets in specs, where a service reads them, and how it masks them in its output.

``{"$secret": "file:db/password"}`` in a spec stands for a string that the service reads when an attempt starts.
"""

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from everwatch._context import Outlet
from everwatch._wire import Work, dumps

Json = Any
_MEMBER = "$secret"
_MASKED = "***"
# Shorter secrets are not masked, because unrelated words may contain them.
_MASKED_MIN_BYTES = 8
_SECRET_MAX_BYTES = 64 * 1024
_TEXT_MAX_BYTES = 512
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretError(ValueError):
    """A secret cannot be read: names its place in the spec and the cure, never a secret."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Which secrets the specs of observers may refer to."""

    # The folder below which ``file:`` references are read.
    dir: str = ""
    # The names of the environment variables that ``env:`` references may name.
    env: frozenset[str] = frozenset()

    def check(self) -> str | None:
        """What is wrong with the settings: the key of ``[service]`` and the rule."""
        if self.dir and not Path(self.dir).is_absolute():
            return f"secrets_dir: `{self.dir}` is not an absolute path"
        wrong = next((name for name in sorted(self.env) if not _VARIABLE.fullmatch(name)), None)
        if wrong is not None:
            return f"secrets_env: `{wrong}` is not the name of a variable: use A-Z a-z 0-9 _"
        return None

    def resolve(self, spec: Json) -> tuple[Json, "Mask | None"]:
        """The spec with the secrets in place of its references, and what hides them.

        Raises:
            SecretError: the first secret that cannot be read.
        """
        found: list[str] = []

        def lookup(at: str, members: dict[str, Json]) -> str:
            text = members[_MEMBER]
            if len(members) > 1 or not isinstance(text, str):
                form = 'write {"$secret": "file:PATH"} or {"$secret": "env:NAME"}, without other members'
                raise SecretError(f"the secret at /spec{at}: {form}")
            try:
                secret = self._read(text)
            except (OSError, ValueError) as error:
                raise SecretError(f"the secret at /spec{at}, {text[:_TEXT_MAX_BYTES]}: {error}") from None
            found.append(secret)
            return secret

        resolved = _replaced(spec, "", lookup)
        return resolved, Mask.of(found)

    def _read(self, text: str) -> str:
        source, _, name = text.partition(":")
        if source == "file" and _PATH.fullmatch(name) and len(text) <= _TEXT_MAX_BYTES:
            secret = self._read_file(name)
        elif source == "env" and _VARIABLE.fullmatch(name):
            if name not in self.env:
                raise ValueError(f"the service does not allow this variable: add {name} to [service] secrets_env")
            if name not in os.environ:
                raise ValueError(
                    f"the environment of this service has no variable {name}: set it and restart the service"
                )
            secret = os.environ[name]
        else:
            raise ValueError(
                'write "file:PATH", with a path below the folder of secrets, or "env:NAME"; names in a path have '
                "A-Z a-z 0-9 . _ - and do not begin with a dot"
            )
        if secret.endswith("\n"):
            secret = secret.removesuffix("\n").removesuffix("\r")
        if not secret:
            raise ValueError("the secret is empty")
        try:
            size = len(secret.encode())
        except UnicodeEncodeError:
            raise ValueError("the secret is not text in UTF-8") from None
        if size > _SECRET_MAX_BYTES:
            raise ValueError(f"the secret is larger than {_SECRET_MAX_BYTES} bytes")
        return secret

    def _read_file(self, name: str) -> str:
        """Symbolic links are followed as long as they stay in the folder: this is how Kubernetes mounts secrets."""
        if not self.dir:
            raise ValueError("this service has no folder of secrets: set [service] secrets_dir")
        folder = Path(self.dir).resolve(strict=True)
        real = (folder / name).resolve(strict=True)
        if not real.is_relative_to(folder):
            raise ValueError(f"{Path(self.dir) / name} is a symbolic link to a file outside [service] secrets_dir")
        if not real.is_file():
            raise ValueError(f"{Path(self.dir) / name} is not a file")
        with real.open("rb") as file:
            # With the line break, which is not part of the secret, and one byte that is too many.
            data = file.read(_SECRET_MAX_BYTES + 3)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{Path(self.dir) / name} is not text in UTF-8") from None


def _replaced(value: Json, at: str, lookup: Callable[[str, dict[str, Json]], str]) -> Json:
    if isinstance(value, dict):
        if _MEMBER in value:
            return lookup(at, value)
        step = {name: name.replace("~", "~0").replace("/", "~1") for name in value}
        return {name: _replaced(member, f"{at}/{step[name]}", lookup) for name, member in value.items()}
    if isinstance(value, list):
        return [_replaced(item, f"{at}/{index}", lookup) for index, item in enumerate(value)]
    return value


def _forms(secret: str) -> list[str]:
    """The forms in which a secret appears in output: plain, inside JSON, inside a URL, and line by line."""
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    forms = [secret, json.dumps(secret)[1:-1], plain, plain.replace("/", "\\/"), quote(secret, safe="")]
    forms += [line.strip() for line in secret.splitlines()]
    return [form for form in forms if len(form.encode()) >= _MASKED_MIN_BYTES]


def _pattern(forms: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(form) for form in sorted(set(forms), key=len, reverse=True)))


class Mask:
    """Hides the secrets of one attempt. The process hides them on standard error until :meth:`close`."""

    def __init__(self, forms: list[str]) -> None:
        self._forms = forms
        self._pattern = _pattern(forms)
        _PROCESS.add(forms)

    @staticmethod
    def of(secrets: list[str]) -> "Mask | None":
        """None if there is nothing to hide."""
        forms = [form for secret in secrets for form in _forms(secret)]
        return Mask(forms) if forms else None

    def close(self) -> None:
        """The attempt has ended."""
        _PROCESS.remove(self._forms)

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self._pattern.sub(_MASKED, text)

    def is_in(self, text: str) -> bool:
        """Whether the text has a secret."""
        return self._pattern.search(text) is not None

    def json(self, value: Json) -> Json:
        """JSON whose strings and names have no secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.json(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value


class MaskedOutlet:
    """An outlet that hides the secrets of one attempt in all that its code tells."""

    def __init__(self, outlet: Outlet, mask: Mask) -> None:
        self._outlet = outlet
        self._mask = mask

    async def emit(self, work: Work, epoch: int, value: Json, key: str | None, headers: Mapping[str, str]) -> None:
        """Publishes the value without secrets."""
        key = None if key is None else self._mask.text(key)
        headers = {name: self._mask.text(text) for name, text in headers.items()}
        # As the JSON that it becomes: a dataclass or an enum is not looked into otherwise.
        value = self._mask.json(json.loads(dumps(value)))
        await self._outlet.emit(work, epoch, value, key, headers)

    def progress(self, work: Work, epoch: int, text: str) -> None:
        """Shows the text without secrets."""
        self._outlet.progress(work, epoch, self._mask.text(text))

    def ready(self, work: Work, epoch: int) -> None:
        """The code does its work now."""
        self._outlet.ready(work, epoch)

    async def checkpoint(self, work: Work, epoch: int, value: Json) -> None:
        """Stores a checkpoint that has no secret: a masked one would be of no use to the next attempt."""
        if self._mask.is_in(dumps(value)):
            raise ValueError(
                "the checkpoint contains a secret of the spec and is not stored: remove the secret from it"
            )
        await self._outlet.checkpoint(work, epoch, value)

    async def restored(self, work: Work, epoch: int) -> Json:
        """The newest checkpoint, or None."""
        return await self._outlet.restored(work, epoch)

    async def acquire(self, permits: Mapping[str, int]) -> None:
        """Waits until a manager has granted these permits."""
        await self._outlet.acquire(permits)

    def log(self, work: Work, epoch: int, stream: str, text: str) -> None:
        """Adds the lines without secrets."""
        self._outlet.log(work, epoch, stream, self._mask.text(text))


class _ProcessMask:
    """The secrets of all attempts of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        # None if it must be made, or if there is nothing to hide.
        self._pattern: re.Pattern[str] | None = None

    def add(self, forms: list[str]) -> None:
        with self._lock:
            self._users.update(forms)
            self._pattern = None

    def remove(self, forms: list[str]) -> None:
        with self._lock:
            self._users.subtract(forms)
            self._users = +self._users

    def text(self, text: str) -> str:
        with self._lock:
            if not self._users:
                return text
            pattern = self._pattern = self._pattern or _pattern(list(self._users))
        return pattern.sub(_MASKED, text)


_PROCESS = _ProcessMask()


def hidden(text: str) -> str:
    """The text without the secrets of all observers of the process."""
    return _PROCESS.text(text)
