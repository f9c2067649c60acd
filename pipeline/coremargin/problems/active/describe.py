"""What a campaign's model claims, in words: the same for terminals and pages.

Pure functions of the content of ``model.json``, or of what a campaign says of itself, whose keys are the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import fields

from coremargin.formats.location import storage_words
from coremargin.problems.active.spec import AT_ONCE, SOFT, ActiveJob
from coremargin.report.text import count
from coremargin.units import exact_size

Pairs = list[tuple[str, str]]
Facts = Mapping[str, Any]

SHOWN = 12  #: classes that a text names


def is_soft(parameters: Facts) -> bool:
    """Whether answers may contradict each other."""
    return parameters.get("loss") is not None


def wrong_rows(evidence: Facts, *, unsure: int) -> str:
    """How many rows can be labelled wrongly, as rows and as shares; evidence: of all, or of one class.

    A bound from below is one only as long as all rows have a label.
    """
    rows = evidence["population"]
    most = f"at most {_share(evidence['error_bound'], rows)}"
    least = int(evidence.get("error_least") or 0)
    return f"at least {_share(least, rows)} and {most}" if least and not unsure else most


def _share(some: int, rows: int) -> str:
    """Rows, with their share where there are many."""
    return f"{some:,} ({100 * some / rows:.3g} %)" if some and rows else f"{some:,}"


def draws_text(evidence: Facts) -> str:
    """What the draws were; those that were wrong are some of the rows that can be wrong."""
    counted = ", which are counted" if evidence["wrong"] > 1 else ", which is counted" if evidence["wrong"] else ""
    return (
        f"{evidence['wrong']:,} of {evidence['draws']:,} drawn {'was' if evidence['wrong'] == 1 else 'were'}{counted}"
    )


def population_text(evidence: Facts) -> str:
    """The rows that draws are about; those drawn are among them, and have an answer since."""
    were = "was" if evidence["draws"] == 1 else "were"
    return f"{evidence['population']:,} rows that had no answer when {evidence['draws']:,} of them {were} drawn"


def no_draws_text(left: int) -> str:
    """The message where no draws are evidence; left: rows that could be answered and were not."""
    return "nothing is shown of the rows without an answer" if left > 0 else "all rows are answered"


def evidence_pairs(evidence: Facts | None, *, unsure: int, left: int) -> Pairs:
    """What draws show: of all rows and, where that was asked for, of those of each class that is predicted.

    left: rows without an answer that an annotator could label.
    """
    if evidence is None:
        pairs = [("labels", no_draws_text(left))]
    else:
        wrong = wrong_rows(evidence, unsure=unsure)
        text = f"{wrong} of the {population_text(evidence)} are labelled wrongly: {draws_text(evidence)}"
        pairs = [("labels", f"{text}, confidence {evidence['confidence']}")]
        for part in (evidence.get("strata") or ())[:SHOWN]:
            of = f"{wrong_rows(part, unsure=unsure)} of {part['population']:,} rows called so are not"
            pairs.append((f"  {part['label']!r}", f"{of}: {draws_text(part)}"))
        pairs += _rest(evidence.get("strata") or ())
    return pairs if not unsure else [*pairs, ("unsure", unsure_text(unsure))]


def unsure_text(unsure: int) -> str:
    """The message about rows that no annotator could label, for now or for ever."""
    one = unsure == 1
    text = f"{count(unsure, 'row')} that no annotator could label, or whose answer was taken back"
    return f"{text}: nothing is claimed of {'it' if one else 'them'}"


def expected_pairs(status: Facts, *, left: int) -> Pairs:
    """How many answers a campaign needs, before two classes are known; if these may be nearly all, what needs fewer.

    left: rows without an answer.
    """
    expected = status["expected"]
    if expected is None:
        return []
    near = f"{expected['near']:,} near the hyperplane (fewer the larger the margin)" if expected["near"] else ""
    drawn = f"{expected['draws']:,} drawn" if expected["draws"] else ""
    drawn += " (if none is wrong)" if drawn and not is_soft(status["parameters"]) else ""
    parts = " and ".join(part for part in (near, drawn) if part)
    pairs = [("expected", f"up to about {count(expected['answers'], 'answer')}: {parts}")]
    if expected["nearly_all"]:
        pairs.append(("warning", f"these may be nearly all of the {left:,} rows: {_fewer(expected['remedy'], status)}"))
    return pairs


def _fewer(remedy: Facts | None, status: Facts) -> str:
    """What to do instead of a campaign that asks about nearly every row."""
    every = "label all of them, and train on their labels"
    if remedy is None:
        return every
    options = f" --loss {remedy['loss']} --C 1" if remedy["loss"] is not None and status["loss"] is None else ""
    options += f" --error {remedy['error']:g}" if remedy["error"] != status["parameters"]["error"] else ""
    return f"{every}, or start with{options}: up to about {remedy['answers']:,} answers"


def bounds_pairs(record: Facts, exactly: Any) -> Pairs:
    """What is proven of the hyperplane, or of each class's; exactly: how a bound is written."""
    certificate, parameters, members = record["certificate"], record["parameters"], record.get("members")
    soft = is_soft(parameters)
    if members is None:
        return _value(certificate, parameters, exactly) if soft else _margin(certificate, parameters, exactly)
    if soft:
        head = f"of each class against the rest, {_loss(parameters)}: the model's, and what none can be below"
    else:
        every = f"of all {_rows(parameters)}, if they are labelled as the model says"
        head = f"of each class against the rest, {every}, and the best possible"
    first, second = ("upper", "lower") if soft else ("lower", "upper")
    words = ("at least", "at most")[not soft]
    pairs = [
        (
            f"  {one['label']!r}",
            "no answer"
            if one["lower"] is None and one["upper"] is None
            else f"{exactly(one[first])}, possible {_bound(words, one[second], exactly)}",
        )
        for one in members[:SHOWN]
    ]
    return [("values" if soft else "margins", head), *pairs, *_rest(members)]


def hypothesis_pairs(parameters: Facts) -> Pairs:
    """Which hyperplane the model has, unless it is that of the largest margin."""
    if parameters.get("hypothesis") != "centre":
        return []
    name = f"the centre {parameters['method']!r} of all hyperplanes that agree with the answers"
    return [("hypothesis", f"{name}, or the nearest to it with 1 - {parameters['epsilon']} of the best margin")]


def _rest(parts: Iterable[Any]) -> Pairs:
    more = len(list(parts)) - SHOWN
    return [("", f"and {more:,} more: `coremargin show --json`")] if more > 0 else []


def _rows(parameters: Facts) -> str:
    """Which rows bounds are about."""
    return "mapped rows" if parameters.get("map") else "rows"


def _margin(certificate: Facts, parameters: Facts, exactly: Any) -> Pairs:
    rows, every = f"{certificate['coreset_rows']:,} of the rows answered", _rows(parameters)
    return [
        ("margin", f"{exactly(certificate['lower'])} of all {every}, if they are labelled as the model says"),
        ("best possible", _bound("at most", certificate["upper"], exactly, f", by {rows}")),
    ]


def _value(certificate: Facts, parameters: Facts, exactly: Any) -> Pairs:
    return [
        ("value", f"{exactly(certificate['upper'])} of the {_rows(parameters)} answered, {_loss(parameters)}"),
        ("best possible", _bound("at least", certificate["lower"], exactly)),
    ]


def _bound(word: str, value: float | None, exactly: Any, by: str = "") -> str:
    """A bound and what proves it; that it is not known, where there is none."""
    return "not known" if value is None else f"{word} {exactly(value)}{by}"


def _loss(parameters: Facts) -> str:
    return f"{str(parameters['loss']).replace('_', ' ')}, C {parameters['C']}"


FOLDS = 5  #: of the answers, by which C is found: each class has to have as many
_NAMES = (
    "method",
    "epsilon",
    "error",
    "confidence",
    "by_class",
    "hypothesis",
    "multi_class",
    "loss",
    "C",
    "trial",
    "seed",
    "intercept",
    "scaling",
    "map",
    "components",
    "gamma",
    "degree",
    "coef0",
    "map_seed",
    "memory",
)
#: What one campaign takes over from another, with their defaults.
TAKEN_OVER = {field.name: field.default for field in fields(ActiveJob) if field.name in _NAMES}


def restart_command_with_loss(store: str, campaign: str, parameters: Mapping[str, Any], *, fewest: int) -> str:
    """The command that continues from answers with which no hyperplane agrees, with the same parameters.

    parameters: parameters of the campaign. fewest: answers of the class that has the fewest.
    """
    cost = "auto" if fewest >= FOLDS else "1"
    possible = {
        **parameters,
        "method": parameters.get("method") if parameters.get("method") in SOFT else TAKEN_OVER["method"],
        "multi_class": None,
    }
    return restart_command(store, campaign, ["--loss", "hinge", "--C", cost, *options_of(possible)])


def restart_command_at_once(store: str, campaign: str, parameters: Mapping[str, Any]) -> str | None:
    """The command that continues with one margin of all classes; None with a map, a centre or another method."""
    if parameters.get("map") or parameters.get("hypothesis") or parameters.get("method") not in AT_ONCE:
        return None
    return restart_command(store, campaign, options_of({**parameters, "multi_class": "crammer-singer"}))


def restart_command(store: str, campaign: str, options: list[str]) -> str:
    """The command that begins another campaign with the answers of one."""
    begin = ["coremargin", "active", "start", store, "--out", "NEW", *storage_words(store)]
    return shlex.join([*begin, *options, "--examples", campaign])


def options_of(parameters: Mapping[str, Any]) -> list[str]:
    """Parameters of a campaign that differ from their defaults, as options."""
    found = list[str]()
    for name, default in TAKEN_OVER.items():
        value, option = parameters.get(name), name.replace("_", "-")
        if value is None or value == default:
            continue
        if isinstance(value, bool):
            found.append(f"--{option}" if value else f"--no-{option}")
        else:
            found += [f"--{option}", str(exact_size(value) if name == "memory" else value)]
    return found
