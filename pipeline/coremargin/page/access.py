"""Who may talk to the page: whoever knows its address, by a browser that our own page sent there.

A page of another site sends an Origin that is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import json

from coremargin.serve import access

if TYPE_CHECKING:
    from coremargin.serve.access import Address

FILE = "page.json"  #: where it is served, in the folder of the campaign

#: What every answer says: nothing but our own files is loaded, nothing is kept, nobody frames the page or hears of it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def refusal(address: Address, method: str, token: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """The status and the reason for which a request is refused; None for one of ours."""
    refused = access.check_request(address, headers.get("Host", ""), token)
    if refused is None and method == "POST":
        if headers.get("Origin") not in [f"http://{one}" for one in address.hosts]:
            return 403, "expected an answer from this page, found one from another site"
        if headers.get("Content-Type", "").partition(";")[0] != "application/json":
            return 415, "expected an answer as JSON"
    return refused


def as_json(value: object) -> bytes:
    """For a browser: nothing in it can end a script or begin a tag."""
    return json.encode(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
