"""References to secrets in specs: read where they may be, hidden in all that code tells."""

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from everwatch import Context
from everwatch._effects import Done, Errored
from everwatch._log import DroppingHandler
from everwatch._secrets import Mask, SecretError, Secrets
from everwatch._settings import SettingsError, load
from test_running import Stage

PASSWORD = 'hunter2"hunter2'


def folder_of(path: Path) -> Secrets:
    """A folder of secrets as Kubernetes mounts it."""
    real = path / "secrets" / "db" / "..2026"
    real.mkdir(parents=True)
    (real / "password").write_text(PASSWORD + "\n")
    (path / "secrets" / "db" / "..data").symlink_to("..2026")
    (path / "secrets" / "db" / "password").symlink_to("..data/password")
    (path / "outside").write_text("not yours")
    (path / "secrets" / "link").symlink_to(path / "outside")
    (path / "secrets" / "empty").write_text("\n")
    (path / "secrets" / "binary").write_bytes(b"\xff\xfe")
    (path / "secrets" / "large").write_text("x" * 65_537)
    return Secrets(str(path / "secrets"), frozenset({"EVERWATCH_TEST_SECRET"}))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("file:link", "is a symbolic link to a file outside [service] secrets_dir"),
        ("file:none", "No such file"),
        ("file:db", "is not a file"),
        ("file:empty", "the secret is empty"),
        ("file:binary", "is not text in UTF-8"),
        ("file:large", "the secret is larger than 65536 bytes"),
        ("file:../outside", 'write "file:PATH"'),
        ("file:db/..data/password", 'write "file:PATH"'),
        ("env:HOME", "add HOME to [service] secrets_env"),
        ("env:EVERWATCH_TEST_SECRET", "has no variable EVERWATCH_TEST_SECRET"),
        ("vault:x", 'write "file:PATH"'),
    ],
)
def test_a_secret_that_cannot_be_read_is_named_with_its_place(tmp_path: Path, reference: str, expected: str) -> None:
    with pytest.raises(SecretError) as raised:
        folder_of(tmp_path).resolve({"a/b": [{"$secret": reference}]})
    assert str(raised.value).startswith("the secret at /spec/a~1b/0, ")
    assert expected in str(raised.value)


def test_secrets_are_read_where_they_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERWATCH_TEST_SECRET", "from the environment")
    secrets = folder_of(tmp_path)
    spec = {"a": {"$secret": "file:db/password"}, "b": {"$secret": "env:EVERWATCH_TEST_SECRET"}, "c": 1}
    resolved, mask = secrets.resolve(spec)
    assert resolved == {"a": PASSWORD, "b": "from the environment", "c": 1}
    assert mask is not None
    mask.close()
    assert secrets.resolve({"c": [1]}) == ({"c": [1]}, None)
    with pytest.raises(SecretError, match="set \\[service\\] secrets_dir"):
        Secrets().resolve({"$secret": "file:a"})
    with pytest.raises(SecretError, match="the secret at /spec"):
        secrets.resolve({"$secret": "file:a", "more": 1})


def test_settings_that_cannot_work_are_named() -> None:
    assert Secrets("/run/secrets", frozenset({"TOKEN"})).check() is None
    assert "secrets_dir: `secrets`" in str(Secrets("secrets").check())
    assert "secrets_env: `A=B`" in str(Secrets("", frozenset({"A=B"})).check())


async def test_nothing_that_code_tells_has_its_secret(tmp_path: Path) -> None:
    async def leaks(ctx: Context, spec: dict[str, Any]) -> Any:
        password = spec["password"]
        ctx.log(f"login with {password}")
        await ctx.emit({"password": password, "n": [1]}, key=password, headers={"h": password})
        with pytest.raises(ValueError, match="is not stored"):
            await ctx.checkpoint({"password": password})
        if spec["raises"]:
            raise RuntimeError(f"refused: {password}")
        return [password]

    stage = Stage(leaks, folder_of(tmp_path))
    for raises, outcome in ((True, Errored("RuntimeError: refused: ***")), (False, Done(["***"]))):
        stage.start({"password": {"$secret": "file:db/password"}, "raises": raises})
        assert await stage.outcome() == outcome
    assert stage.outlet.emitted == [({"password": "***", "n": [1]}, "***", {"h": "***"})] * 2
    assert stage.outlet.lines[0] == "login with ***"
    assert PASSWORD not in str(stage.outlet.lines)


async def test_a_secret_is_read_again_for_each_attempt(tmp_path: Path) -> None:
    async def returns(ctx: Context, spec: dict[str, Any]) -> Any:
        return len(spec["password"])

    secrets = folder_of(tmp_path)
    stage = Stage(returns, secrets)
    file = Path(secrets.dir) / "db" / "password"
    for text in ("first", "second"):
        file.write_text(text)
        stage.start({"password": {"$secret": "file:db/password"}})
        assert await stage.outcome() == Done(len(text))
    file.unlink()
    stage.start({"password": {"$secret": "file:db/password"}})
    outcome = await stage.outcome()
    assert isinstance(outcome, Errored)
    assert "No such file" in outcome.error


def test_lines_of_the_process_hide_the_secrets_of_all_that_runs() -> None:
    stream = io.StringIO()
    handler = DroppingHandler(logging.StreamHandler(stream))
    log = logging.getLogger("test_secrets")
    log.addHandler(handler)
    log.propagate = False
    mask, short = Mask.of(["the first secret", "short"]), Mask.of(["short"])
    assert mask is not None
    assert short is None
    log.error("the first %s, short", "secret")
    # The line may be written later.
    mask.close()
    log.error("the first secret")
    handler.flush_within(5)
    assert stream.getvalue() == "***, short\nthe first secret\n"
    log.removeHandler(handler)


def test_the_url_of_the_broker_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://me:first@a/%2f, amqp://me:first@b/%2f\n")
    settings = load(environment={"EVERWATCH_BROKER__URL_FILE": str(file)})
    assert settings.current_urls() == settings.urls
    file.write_text("amqp://me:second@a/%2f")
    assert settings.current_urls() == ("amqp://me:second@a/%2f",)
    file.unlink()
    with pytest.raises(SettingsError, match=r"broker.url_file"):
        settings.current_urls()
    settings = load(environment={"EVERWATCH_BROKER__URL": "amqp://me@a/%2f"})
    assert settings.current_urls() == ("amqp://me@a/%2f",)
