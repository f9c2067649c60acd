"""Where servers of ours listen, and whom they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coremargin.errors import OutputError
from coremargin.serve.access import Address, check_request, load_address, new_token, open_listener, save_address

if TYPE_CHECKING:
    from pathlib import Path


def test_an_address_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    """The same token and port after a restart; a file that others could read, or that is none, gives another token."""
    path = tmp_path / "address.json"
    address = Address(port=4321, token=new_token())
    save_address(path, address)
    assert load_address(path) == address
    path.chmod(0o644)
    assert load_address(path) is None
    path.write_text("{}")
    path.chmod(0o600)
    assert load_address(path) is None
    first, listener = open_listener(path, None)
    listener.close()
    again, listener = open_listener(path, None)
    assert again == first
    other, another = open_listener(path, None)  # where it is taken
    assert (other.token == first.token, other.port == first.port) == (True, False)
    with pytest.raises(OutputError, match=f"port {first.port}: cannot listen"):
        open_listener(path, first.port)
    for one in (listener, another):
        one.close()


def test_names_and_tokens_that_are_not_ours_are_refused() -> None:
    """The address itself and loopback names with its port, and its token: nothing else, nor a beginning of it."""
    address = Address(host="192.0.2.7", port=4321, token=new_token())
    for host in ("192.0.2.7:4321", "127.0.0.1:4321", "localhost:4321"):
        assert check_request(address, host, address.token) is None
    for host in ("", "127.0.0.1", "127.0.0.1:4322", "evil.example:4321", "localhost:4321.evil.example"):
        assert (check_request(address, host, address.token) or (0,))[0] == 421
    for token in ("", address.token[:-1], address.token + "x", new_token()):
        assert (check_request(address, "localhost:4321", token) or (0,))[0] == 403


def test_a_host_of_another_machine_cannot_be_listened_at(tmp_path: Path) -> None:
    """It is said in words, with the host."""
    with pytest.raises(OutputError, match=r"192\.0\.2\.7, port 0: cannot listen"):
        open_listener(tmp_path / "address.json", None, "192.0.2.7")
