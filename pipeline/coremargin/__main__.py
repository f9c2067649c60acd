"""``python -m coremargin``: the command line."""

from __future__ import annotations

from coremargin.cli import main

if __name__ == "__main__":
    main()
