"""What may be changed in a model or a store although it is accepted, each with its reason. All else is refused.

A change that is accepted has to be on these lists, and the judge has to find nothing false: a list says that a place
may hold another value at all, the judge that the value which is there now is true.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from forge_json import WORDS
from forge_judge import same


class Gone:
    """Stands for what is not there."""

    def __repr__(self) -> str:
        return "nothing"


GONE = Gone()


@dataclass(frozen=True)
class Change:
    """One difference: ``place`` is FILE:path of keys, or FILE:array."""

    place: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.place}: {ascii(self.old)[:80]} -> {ascii(self.new)[:80]}"


@dataclass(frozen=True)
class Rule:
    """Places that may hold another value: a pattern for the whole place, a condition, and the reason."""

    places: str
    allows: Callable[[Any, Any], bool]
    why: str

    def covers(self, change: Change) -> bool:
        """Whether this rule allows a change."""
        return re.fullmatch(self.places, change.place) is not None and bool(self.allows(change.old, change.new))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(old: Any, new: Any) -> bool:
    return _is_number(new)


def _number_or_null(old: Any, new: Any) -> bool:
    return new is None or _is_number(new)


def _whole(old: Any, new: Any) -> bool:
    return isinstance(new, int) and not isinstance(new, bool)


def _text(old: Any, new: Any) -> bool:
    return isinstance(new, str) or (new is GONE and isinstance(old, str))


def _word(old: Any, new: Any) -> bool:
    return (isinstance(new, str) and new in WORDS) or new is None


def _versions(old: Any, new: Any) -> bool:
    return isinstance(new, dict) and all(isinstance(value, str) for value in new.values())


def _same_number(old: Any, new: Any) -> bool:
    return isinstance(old, float) and _is_number(new) and float(new) == old


def _rounded(old: Any, new: Any) -> bool:
    return _is_number(old) and isinstance(new, float) and abs(old - new) <= 1e-12


def _same_text(old: Any, new: Any) -> bool:
    return str(old) == str(new)


def _none_left(old: Any, new: Any) -> bool:
    return bool(new == [])


def _more(old: Any, new: Any) -> bool:
    return _whole(old, new) and new >= old


def _anything(old: Any, new: Any) -> bool:
    return True


def _kind(values: Any) -> str:
    return values.dtype.kind if isinstance(values, np.ndarray) else ""


def _same_values(old: Any, new: Any) -> bool:
    """The same numbers in another width, byte order or order in memory."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return False
    whole = _kind(old) in "iu" and _kind(new) in "iu"
    return (whole or _kind(old) == _kind(new)) and np.array_equal(old, new)


def _same_kind(old: Any, new: Any) -> bool:
    return (
        isinstance(old, np.ndarray)
        and isinstance(new, np.ndarray)
        and _kind(old) == _kind(new)
        and old.ndim == new.ndim
    )


def _absent(old: Any, new: Any) -> bool:
    return new is GONE


def _numbers(old: Any, new: Any) -> bool:
    return isinstance(new, np.ndarray) and _kind(new) in "fiu"


_MODEL, _ARRAYS, _FLEET = r"(members/[^/]*/)?model\.json:", r"(members/[^/]*/)?arrays\.npz:", r"fleet\.json:"
_CORESET = r"alpha|duals|coreset_(ids|y|classes|x(_data|_indices|_indptr|_shape)?)"
_PROOF = r"outliers_proof_((rows|weights|paths|proofs)(_ends)?|leaves)"

#: "judged": what is there now is held against the rows by the judge.
MODELS: tuple[Rule, ...] = (
    Rule(r".*\.json:.*", _same_number, "the same number, written in another way"),
    Rule(r".*\.npz:.*", _same_values, "the same numbers, stored in another way"),
    Rule(rf"({_MODEL}|{_FLEET})software\..*", _text, "what it was made with: nothing rests on it"),
    Rule(rf"({_MODEL}|{_FLEET})software", _versions, "the same"),
    Rule(rf"({_MODEL}|{_FLEET})parameters\.(strategy|outlier_search)", _word, "how it was sought: nothing rests on it"),
    Rule(rf"{_MODEL}certificate\.(lower|upper|ratio)", _number_or_null, "a weaker claim may be true: judged"),
    Rule(rf"{_MODEL}kernel\.gamma", _rounded, "that of scale, which depends on the order of sums: judged"),
    Rule(rf"{_MODEL}tried\.upper", _number, "rows that leave less leave no more than that: judged"),
    Rule(rf"{_MODEL}certificate\.radius", _number, "a bound on the longest row, larger is weaker: judged"),
    Rule(rf"{_MODEL}(certificate|parameters)\.epsilon", _number, "another promise, which its bounds may keep: judged"),
    Rule(rf"{_MODEL}certificate\.coreset_rows", _whole, "another proof may have other rows: judged"),
    Rule(rf"{_MODEL}(status|certificate\.kind)", _text, "stopped is a weaker claim than certified: judged"),
    Rule(rf"{_MODEL}parameters\.(C|class_weight(\.\d)?)", _anything, "other prices whose bounds these may be: judged"),
    Rule(rf"{_MODEL}parameters\.(intercept|loss|scaling)", _anything, "where nothing is claimed of it: judged"),
    Rule(rf"{_MODEL}certificate\.store_sha256", _absent, "then rows are named by CRC-32C alone, a weaker claim"),
    Rule(rf"{_MODEL}parameters\.only", _same_text, "the same label, asked for as text"),
    Rule(rf"{_MODEL}parameters\.nu", _number, "another share, whose bounds these may be: judged"),
    Rule(rf"{_MODEL}parameters\.relative_margin", _number, "another bound, whose bounds these may be: judged"),
    Rule(rf"{_MODEL}constant", _number, "another power of two, another problem, whose bounds these may be: judged"),
    Rule(rf"{_MODEL}parameters\.outliers(\.\d+)?", _anything, "the same numbers, asked for in another way: judged"),
    Rule(rf"{_FLEET}evaluations", _none_left, "nothing is claimed of how members do together"),
    Rule(
        rf"{_FLEET}members\.\d+\.(lower|upper|ratio|coreset_rows|status)|{_FLEET}status",
        _anything,
        "as members say: judged",
    ),
    Rule(
        rf"{_FLEET}(evaluations|validation)\.\d+\.(accuracy|mean|std|accuracies\.\d+)",
        _rounded,
        "rounding of a quotient",
    ),
    Rule(
        rf"{_ARRAYS}block_bounds_(?!outliers_|reference).*",
        _anything,
        "what scans proved of each chunk: said to be unchecked",
    ),
    Rule(rf"{_ARRAYS}outliers_(gains|nodes|proof_values)", _numbers, "said to be unchecked"),
    Rule(
        rf"{_ARRAYS}(w|b|hypothesis|centre|square|threshold|axes|span_slopes|span_offsets|span_residuals|reference|reference_of|reference_centre|reference_axes|move|ramp|shift|factor|{_CORESET})",
        _same_kind,
        "judged",
    ),
    Rule(rf"{_ARRAYS}ramp", _absent, "then slacks are in proportion, whose dual may prove it too: judged"),
    Rule(rf"{_ARRAYS}proof_(rows|weights|paths|numbers)(_ends)?", _same_kind, "judged"),
    Rule(
        rf"{_ARRAYS}scaling_(centre|axes|bounds|alpha|coreset_ids|coreset_x|span_\w+)",
        _same_kind,
        "another ellipsoid of almost the least volume: judged",
    ),
    Rule(rf"{_ARRAYS}tried_(ids|y|alpha)", _same_kind, "judged"),
    Rule(rf"{_ARRAYS}outliers_(lower|upper|w|b|ids|signs|margins)|{_ARRAYS}{_PROOF}", _same_kind, "judged"),
)


def _longer(old: Any, new: Any) -> bool:
    """What was there is the beginning."""
    return isinstance(old, bytes) and isinstance(new, bytes) and new.startswith(old)


_JSON = r"(.*/)?zarr\.json:"
STORES: tuple[Rule, ...] = (
    Rule(r"zarr\.json:attributes\.about(\..*)?", _anything, "what people say about the rows"),
    Rule(r"zarr\.json:attributes\.commits\.0\.sha256", _absent, "an older store: that of its bytes is computed"),
    Rule(
        r"zarr\.json:attributes\.(?!(format|version|features|dtype|classes|rows|chunk_rows|commits|log|file_entries|weighted)\b).*",
        _anything,
        "others may add attributes of their own",
    ),
    Rule(rf"{_JSON}shape\.0", _more, "there may be more than the last commit names"),
    Rule(rf"(?!zarr\.json){_JSON}attributes(\..*)?", _anything, "attributes of arrays are nobody's"),
    Rule(
        rf"{_JSON}(dimension_names|fill_value)(\..*)?",
        _anything,
        "names, and a value for chunks that are missing: none may be",
    ),
    Rule(
        rf"{_JSON}codecs\.1\.configuration\.(cname|clevel|shuffle|typesize|blocksize)",
        _anything,
        "how chunks were packed: each says by itself how it is unpacked",
    ),
    Rule(r"blocks(/\d+)?/zarr\.json:?.*", _anything, "groups that say nothing about rows"),
    Rule(
        r"blocks/\d+/(?!digest|nonzeros|marks|chunk|array|y/|weights|sha256)[^:]*:?.*",
        _anything,
        "statistics that the verifier does not believe, nor read",
    ),
    Rule(r"blocks/vectors/.*|blocks/[^/]*\.(npz|npy|bin)", _anything, "the same of sparse chunks"),
    Rule(r"\.lock", _anything, "who writes"),
    Rule(r"log\.jsonl", _longer, "what no root counts: a killed writer may leave it"),
    Rule(r".*\.json:.*", same, "no change"),
)

#: Files of the specimen whose labels were changed that only its earlier commits need, and groups, which say nothing.
UNREAD = (
    r"(y/c\.[023]|changes/000001/y/c\.2|blocks/00000[013]/.*|blocks/000002/array/.*"
    r"|changes/\d+/rows\.npz|(blocks|changes)(/\d+)?/zarr\.json)"
)


def _labels_said_anew(old: Any, new: Any) -> bool:
    """Of three digests of 8 bytes only the halves about labels of the first and the third, or the checksum, differ."""
    return len(old) == len(new) and old[4:16] == new[4:16]


def _hashes_said_anew(old: Any, new: Any) -> bool:
    """Of the hashes of three chunks only those of labels of the first and the third, of weights, or the checksum."""
    return _other_hashes(old, new, 5) <= {(0, 1), (2, 1), (0, 4), (1, 4), (2, 4)}


def _weights_of_second_hashed_anew(old: Any, new: Any) -> bool:
    """Of the hashes of labels and weights of three chunks only that of the second one's weights, or the checksum."""
    return _other_hashes(old, new, 2) <= {(1, 1)}


def _other_hashes(old: Any, new: Any, parts: int) -> set[tuple[int, int]]:
    """Which hashes of three chunks differ: chunk and part; of files that are longer or shorter (-1, -1)."""
    if len(old) != len(new) or len(old) != 4 + 3 * parts * 32:
        return {(-1, -1)}
    one, other = (np.frombuffer(file[:-4], np.uint8).reshape(3, parts, 32) for file in (old, new))
    return {(int(chunk), int(part)) for chunk, part in np.argwhere((one != other).any(axis=2))}


def _second_of_three(old: Any, new: Any) -> bool:
    """Of three numbers of 4 bytes only the second, or the checksum, differs."""
    return len(old) == len(new) and old[:4] == new[:4] and old[8:12] == new[8:12]


#: The same of its root.
CHANGED: tuple[Rule, ...] = (
    *STORES,
    Rule(
        r"zarr\.json:attributes\.commits\.0\.(rows|digest|sha256|classes|moved)", _anything, "what an earlier commit is"
    ),
    Rule(r"zarr\.json:attributes\.commits\.1\.since", _anything, "fewer entries are taken for repeated"),
    Rule(r"blocks/000002/digest/c\.0", _labels_said_anew, "the last commit says what labels these chunks have"),
    Rule(r"blocks/000002/sha256/c\.0\.0\.0", _hashes_said_anew, "the last commit says what these are"),
    Rule(r"blocks/000004/sha256/c\.0\.0\.0", _weights_of_second_hashed_anew, "nothing of these weights is read"),
    Rule(r"blocks/000004/weights/c\.0", _second_of_three, "nothing of a chunk whose rows have no weights is read"),
)


def unallowed(changes: Iterator[Change], rules: tuple[Rule, ...]) -> list[str]:
    """The changes that no rule allows."""
    return [str(change) for change in changes if not any(rule.covers(change) for rule in rules)]


def _canonical(value: Any) -> Any:
    """A fleet's record with its lists in an order that means nothing: members that decide together keep theirs."""
    if not isinstance(value, dict) or not isinstance(value.get("members"), list):
        return value

    def key(entry: Any) -> str:
        if not isinstance(entry, dict):
            return ""
        cost = entry.get("C")
        return f"{entry.get('fold')!r} {float(cost) if _is_number(cost) else cost!r}"  # 1 is 1.0

    asked = value.get("parameters")
    if isinstance(asked, dict) and isinstance(asked.get("C"), list) and all(map(_is_number, asked["C"])):
        value = {**value, "parameters": {**asked, "C": sorted(asked["C"])}}
    lists = {
        name: sorted(value[name], key=key) for name in ("members", "evaluations") if isinstance(value.get(name), list)
    }
    return {**value, **lists}


def json_changes(place: str, old: Any, new: Any) -> Iterator[Change]:
    """The innermost places where two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from json_changes(f"{place}.{key}", old.get(key, GONE), new.get(key, GONE))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from json_changes(f"{place}.{k}", one, other)
    elif not same(old, new):
        yield Change(place, old, new)


def _repeated(pairs: list[tuple[str, Any]]) -> Any:
    """An object whose keys are there once; else one that says so."""
    record = dict(pairs)
    return record if len(record) == len(pairs) else {**record, "@repeated@": [key for key, _ in pairs]}


def file_changes(name: str, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    """Differences of a file that decide about something."""
    if old == new:
        return
    if old is None or new is None:
        yield Change(name, GONE if old is None else "a file", GONE if new is None else "a file")
    elif name.endswith(".json"):
        one, other = (_canonical(json.loads(text, object_pairs_hook=_repeated)) for text in (old, new))
        for change in json_changes("", one, other):
            yield Change(f"{name}:{change.place.removeprefix('.')}", change.old, change.new)
    elif name.endswith(".npz"):
        arrays = [arrays_in(content) for content in (old, new)]
        for key in sorted({*arrays[0], *arrays[1]}):
            values = [part.get(key, GONE) for part in arrays]
            if not all(isinstance(part, np.ndarray) for part in values) or not _identical(*values):
                yield Change(f"{name}:{key}", *values)
    else:
        yield Change(name, old[:20], new[:20])


@lru_cache(maxsize=64)  # honest files come again and again
def arrays_in(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of a file, as NumPy reads them."""
    with np.load(io.BytesIO(content)) as found:
        return dict(found)


def _identical(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def changes(old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]) -> Iterator[Change]:
    """Differences of the files in ``new``, where None is a file that is not there."""
    for name, content in new.items():
        yield from file_changes(name, old.get(name), content)
