"""``coremargin active labels``: the answers of a campaign as labels of its store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.campaigns import opening
from coremargin.cli.common import PATH, json_option
from coremargin.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from coremargin.data.relabel import LabelReport


@click.command()
@click.argument("campaign", type=PATH)
@json_option
def labels(campaign: Path, as_json: bool) -> None:
    """Write the answers into the store as a commit.

    Rows without an answer keep their label. A row whose answer was undone loses its label if that label came from
    the campaign. Earlier commits can still be opened, and the campaign continues on them. If the store already has
    exactly these answers, nothing is written.

    \b
      coremargin active labels rows.campaign
      coremargin train rows.zarr --out model
    """
    with opening(campaign) as opened:
        found = opened.write_labels()
        store = str(opened.store.path)
    if as_json:
        known = ("given", "added", "replaced", "removed", "digest")
        examples = [{"row": row, "before": before, "now": now} for row, before, now in found.examples]
        print_json({"store": store, **{name: getattr(found, name) for name in known}, "examples": examples})
    else:
        print_lines(*_told(found, store))


def _told(found: LabelReport, store: str) -> list[str]:
    from coremargin.report.text import count

    if not found.changed:
        return [f"nothing to write: {store} has the labels of all {count(found.given, 'answer')}"]
    there = count(found.given - found.added - found.replaced, "answer")
    got = f"{count(found.added, 'row')} without label got one, {count(found.replaced, 'row')} had another one"
    back = f", {count(found.removed, 'row')} whose answer was taken back lost theirs" if found.removed else ""
    lines = [f"{store}: {got}{back}; {there} there already"]
    for row, before, now in found.examples:
        lines.append(f"  row {row:,} was {before!r}, {'has none' if now is None else f'is {now!r}'} now")
    if found.replaced + found.removed > len(found.examples):
        lines.append(f"  and {found.replaced + found.removed - len(found.examples):,} more")
    return [*lines, f"commit  {found.digest}"]
