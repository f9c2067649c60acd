"""A client of Label Studio's API: exports annotations, imports tasks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coremargin.errors import UsageError
from coremargin.formats.strict_json import cut

TIMEOUT_S = 60.0
ADDRESS = "LABEL_STUDIO_URL"
KEY = "LABEL_STUDIO_API_KEY"


class Unreachable(Exception):
    """Label Studio cannot be reached, or rejects a request; nothing is lost, and later requests may succeed."""


class Client:
    """A project of a Label Studio server. url: its address; key: an access token, legacy or personal."""

    def __init__(self, url: str, project: int, key: str, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url: expected an address such as http://127.0.0.1:8080, found {url!r}")
        self._parts, self._project, self._key, self._timeout_s = parts, project, key.strip(), timeout_s
        self.name = f"Label Studio at {parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def export(self, path: Path) -> None:
        """Write all tasks of the project with their annotations to a file. Raises Unreachable."""
        about = f"/api/projects/{self._project}/export?exportType=JSON&download_all_tasks=true"
        with self._request("GET", about) as answer, open(path, "wb") as file:
            shutil.copyfileobj(answer, file)

    def add(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Import tasks. Raises Unreachable."""
        with self._request("POST", f"/api/projects/{self._project}/import", tasks) as answer:
            answer.read()

    @contextmanager
    def _request(self, method: str, about: str, body: Any = None, *, signed: bool = True) -> Iterator[HTTPResponse]:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        headers = {"Authorization": self._authorization()} if signed else {}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body, allow_nan=False).encode(), "application/json"
        try:
            connection.request(method, self._parts.path.rstrip("/") + about, data, headers)
            answer = connection.getresponse()
            if not 200 <= answer.status < 300:
                raise Unreachable(f"{self.name}: {method} {about.partition('?')[0]}: {self._reason(answer)}")
            yield answer
        except (OSError, HTTPException) as error:
            raise Unreachable(
                f"{self.name}: does not answer ({str(error) or type(error).__name__}); is it running?"
            ) from error
        finally:
            connection.close()

    def _authorization(self) -> str:
        """The header, with a legacy token, or with a short-lived one in exchange for a personal token (three parts)."""
        if self._key.count(".") != 2:
            return f"Token {self._key}"
        with self._request("POST", "/api/token/refresh", {"refresh": self._key}, signed=False) as answer:
            try:
                found = json.loads(answer.read(1 << 20))["access"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise Unreachable(f"{self.name}: expected an access token, found something else") from error
        return f"Bearer {found}"

    def _reason(self, answer: HTTPResponse) -> str:
        hints = {
            401: f"the key in {KEY} is not accepted",
            403: f"the owner of the key in {KEY} is not allowed to do that",
            404: f"there is no project {self._project}",
        }
        return (
            hints.get(answer.status) or f"answered {answer.status} {cut(answer.read(200).decode('utf-8', 'replace'))}"
        )
