"""Whoever waits for the compiler can be told, once, and only where it runs."""

from __future__ import annotations

from coremargin.maths.jit import jit, watched_compiler


def test_the_compiler_is_announced_once() -> None:
    """When the first function in the context is compiled; not for one that is there, nor after the context."""
    made: dict[str, object] = {}
    exec("def twice(x):\n    return x + x\ndef thrice(x):\n    return x + x + x", made)  # noqa: S102 - no file: none is kept
    twice, thrice, told = jit(made["twice"]), jit(made["thrice"]), list[int]()  # type: ignore[arg-type]
    with watched_compiler(lambda: told.append(1)):
        assert told == []
        assert (twice(2), twice(2.0), thrice(1)) == (4, 4.0, 3)
    assert told == [1]
    with watched_compiler(lambda: told.append(2)):
        assert twice(3) == 6
    thrice(1.5)
    assert told == [1]
