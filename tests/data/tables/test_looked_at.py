"""What is seen of a text at a glance, against a plain definition of each word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coremargin.data.tables import looked_at as module
from coremargin.data.tables.looked_at import LookedAt, looked_at

MARKS = (b",", b"\t", b";", b"|")


def plainly(data: bytes, mark: bytes) -> LookedAt:
    """The same, byte after byte."""
    white = b" \t".replace(mark, b"")
    text = b"\n" + data + b"\n\n"
    between, edges = b"\n" + mark, b'\n"' + mark
    around = [
        (text[k - 1 : k], text[k : k + 1], text[k + 1 : k + 2], text[k + 2 : k + 3]) for k in range(1, len(text) - 2)
    ]
    quotes = [(before, after, then) for before, here, after, then in around if here == b'"']
    return LookedAt(
        rows=data.count(b"\n") + 1,
        blank=any(not one.strip(white) for one in data.split(b"\n")),
        padded=any(here in white and (before in edges or after in edges) for before, here, after, _ in around),
        quoted=b'"' in data,
        stray=any(before not in edges and after not in edges for before, after, _ in quotes)
        or any(before in between and after == b'"' and then not in edges for before, after, then in quotes),
    )


@given(
    st.lists(st.sampled_from([b"a", b"1", b'"', b'""', b" ", b"\t", b"\n", b",", b";", b"word"]), max_size=30),
    st.data(),
)
def test_it_is_what_each_byte_says(parts: list[bytes], data: st.DataObject) -> None:
    """Whatever is beside what, and wherever one tile of bytes ends and the next begins."""
    mark, tile = data.draw(st.sampled_from(MARKS)), data.draw(st.sampled_from([1, 2, 3, 7, 1 << 16]))
    text, behind = b"".join(parts).rstrip(b"\r\n"), data.draw(st.sampled_from([b"", b"\n", b"\r\n\n"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TILE", tile)
        assert looked_at(text + behind, mark, len(text)) == plainly(text, mark)
