"""Few labels for many rows: a campaign asks, and is told, until the margin of its store is proven."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from coremargin.active.answers import Given, check_number, row_number
from coremargin.active.create import Rules, begin, checked_people
from coremargin.active.external_answers import Followed, Follower, Refusal, refuse_several, sorted_out
from coremargin.active.folder import CampaignFolder
from coremargin.active.labels import named_classes
from coremargin.active.queried_rows import Question, name_of
from coremargin.active.recording import take
from coremargin.active.store_labels import write_answers
from coremargin.errors import DataError, UsageError
from coremargin.formats.local_path import local_path

if TYPE_CHECKING:
    from coremargin.active.external_answers import Report
    from coremargin.data.relabel import LabelReport
    from coremargin.engine.loop import Callbacks
    from coremargin.formats.answers import Action
    from coremargin.formats.choices import Loss, MapKind, Method, ScalingKind


class Campaign(CampaignFolder):
    """Few labels for the rows of a store, from people or files, until the margin is proven.

    Every method is whole or not at all, and what it has taken is on disk when it returns. Several processes may work on
    one campaign, one after the other.

    Parameters
    ----------
    path : path-like
        The folder of a campaign; ``Campaign.create`` makes one.
    cluster : path-like, optional
        Where scans run: a file of ``cluster/``, a scheduler's address, "embedded" or "threads"; None chooses by size.
    watch : Callbacks, optional
        Who wants to know of scans.

    Raises
    ------
    DataError
        The folder holds no campaign, or one of a newer format, or its log was changed.
    StoreError
        The store lost or changed rows.
    Busy
        Another process works on it.

    Examples
    --------
    >>> campaign = Campaign.create("rows.campaign", "rows.zarr")  # doctest: +SKIP
    >>> question = campaign.ask()[0]  # doctest: +SKIP
    >>> campaign.tell([question.row], ["spam"])  # doctest: +SKIP
    """

    @classmethod
    def create(  # noqa: PLR0913 - what a campaign is about; all but two with a default
        cls,
        path: str | os.PathLike[str],
        store: str | os.PathLike[str],
        *,
        method: Method = "coreset",
        epsilon: float = 0.1,
        error: float = 0.01,
        confidence: float = 0.99,
        seed: int = 0,
        intercept: bool = True,
        scaling: ScalingKind | None = None,
        map: MapKind | None = None,  # noqa: A002 - the name that job files have
        components: int | None = None,
        gamma: float | Literal["scale"] | None = None,
        degree: int | None = None,
        coef0: float | None = None,
        map_seed: int | None = None,
        by_class: bool = False,
        loss: Loss | None = None,
        C: float | Literal["auto"] | None = None,
        trial: int | None = None,
        classes: Sequence[Any] | None = None,
        examples: Iterable[Given] | str | os.PathLike[str] = (),
        memory: int | str = 256 * 2**20,
        block: int | str = 128 * 2**20,
        expires: float | str | None = None,
        people: int | None = None,
        settle: str | None = None,
        cluster: str | os.PathLike[str] | None = None,
        watch: Callbacks | None = None,
    ) -> Campaign:
        """Begin a campaign.

        Parameters
        ----------
        path : path-like
            Folder to make.
        store : path-like
            The rows; labels that the store has are not looked at.
        method : str, default "coreset"
            How rows are chosen: one of those in ``problems/active/strategies.py``.
        epsilon : float, default 0.1
            What may be missing of the best margin, as a share.
        error, confidence : float
            At most this share of the rows is labelled wrongly, and how sure that is to be.
        seed : int, default 0
            Of the draws that try the model.
        intercept : bool, default True
            False for a hyperplane through the origin.
        scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
            Rows are scaled as they are read.
        map : {"nystroem", "fourier", "polynomial"}, optional
            Rows are mapped, after they are scaled, to features of a kernel, as ``coremargin.train`` has it;
            the map is made now, and kept.
        components, gamma, degree, coef0, map_seed : optional
            Of the map.
        by_class : bool, default False
            ``error`` is a share of the rows of each class that is predicted, not of all.
        loss : {"hinge", "squared_hinge"}, optional
            Answers may contradict each other: a soft margin of the rows answered.
        C : float or "auto", optional
            With a loss, the weight of a row's; "auto": by folds of the examples, five of each class at least.
        trial : int, optional
            With a loss, how many rows are drawn to try the model; None: by ``error`` and ``confidence``.
        classes : sequence of labels, optional
            Two, (negative, positive), or more; None: those of the store, or else the first two that are answered.
        examples : iterable of Given, or path-like, optional
            Answers that are known already; a file of them, or a campaign about the same rows: those that hold.
        memory, block : int or str
            Bytes for the rows in memory, and that one task reads; a text such as "64 MiB".
        expires : float or str, optional
            Seconds after which a question without an answer may be asked again; a text such as "2 h".
        people : int, optional
            Each row is asked of so many people, whose answers settle its label.
        settle : str, optional
            The name of who settles what they disagree about; None: most of them, or more people.
        cluster : path-like, optional
            Where scans run.
        watch : Callbacks, optional
            Who wants to know of scans.

        Returns
        -------
        Campaign
            With no answer yet but the examples.

        Raises
        ------
        UsageError
            Something is at that place, or a parameter is out of range.
        OutputError
            Nothing can be written there.
        DataError
            An example cannot be taken.
        """
        from coremargin.problems.active.spec import ActiveJob
        from coremargin.spec import convert
        from coremargin.units import parse_seconds

        named = None if classes is None else named_classes(classes, "Campaign.create")
        file = os.path.abspath(local_path(examples)) if isinstance(examples, str | os.PathLike) else None
        place, rows = os.path.abspath(local_path(path)), os.path.abspath(local_path(store))
        said = {
            "job": "active",
            "store": rows,
            "out": place,
            "method": method,
            "epsilon": epsilon,
            "error": error,
            "confidence": confidence,
            "seed": seed,
            "intercept": intercept,
            "scaling": scaling,
            "map": map,
            "components": components,
            "gamma": gamma,
            "degree": degree,
            "coef0": coef0,
            "map_seed": map_seed,
            "by_class": by_class,
            "loss": loss,
            "C": C,
            "trial": trial,
            "classes": named,
            "examples": file,
            "memory": memory,
            "block": block,
        }
        after = None if expires is None else parse_seconds(expires)
        if after is not None and not after > 0:
            raise UsageError(f"expires: expected a time above 0, found {expires!r}")
        given: Iterable[Any] = () if isinstance(examples, str | os.PathLike) else examples
        rules = Rules(after, *checked_people(people, settle))
        begin(convert(said, ActiveJob, where="Campaign.create"), rules, given, name_of(None))
        return cls(place, cluster=cluster, watch=watch)

    # questions

    def ask(self, n: int = 1, *, who: str | None = None, again: bool = False) -> list[Question]:
        """Rows whose labels are wanted now; scans the store where no row in memory is.

        Parameters
        ----------
        n : int, default 1
            How many at most.
        who : str, optional
            Who is asked; None: the user of this process.
        again : bool, default False
            Those that were asked about before and have no answer yet, all of them, and no others; of ``who``, where
            that is given.

        Returns
        -------
        list of Question
            None where the campaign has ended, or other answers have to come first: ``status`` tells.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        Interrupted
            The scan was interrupted; what was read is kept.
        """
        check_number(n)
        with self.held():
            if again:
                found = self._questions.open() if who is None else self._questions.open_for(name_of(who))
            else:
                found = self._questions.ask(n, name_of(who))
                self._settle()
        return [Question(one.row, one.why, one.attempt, self._features) for one in found]

    def look_ahead(self) -> bool:
        """Scan the store while answers are awaited, where no row in memory is worth a question beside those asked.

        Without it that waits until all of them are answered, and whoever answers waits for the scan. It costs a scan
        that may turn out to be one too many.

        Returns
        -------
        bool
            Whether there was a scan.
        """
        with self.held():
            found = self._questions.look_ahead()
            self._settle()
        return found

    def _features(self, row: int) -> Any:
        return self.rows([row])[0]

    def grow(self, *, who: str | None = None) -> int:
        """Go on with the rows that were appended to the store; one that is running does so at its next scan.

        What was proven was of the rows before: the next scan looks at all of them, and an attempt is void.

        Parameters
        ----------
        who : str, optional
            Who says so; None: the user of this process.

        Returns
        -------
        int
            How many rows there are more; 0 where none was appended.

        Raises
        ------
        StoreError
            The store lost or changed rows.
        """
        with self.held():
            more = self._player.grow(name_of(who))
            self._settle()
        return more

    def write_labels(self) -> LabelReport:
        """Write the answers that hold into the store, as a commit of its own, for training on them.

        Rows without an answer keep what they have, but for those whose answer was taken back: where the store has the
        label that they were once given here, and had none when the row came to the campaign, it has none again. A row
        that has another label gets the one that was answered. The campaign goes on with the commit that it is about,
        which stays as it is. Where the store has all answers, and no other, there is no new commit.

        Returns
        -------
        LabelReport
            How many rows got a label, how many had another one, and how many have none any longer.

        Raises
        ------
        StoreError
            The store lost or changed rows.
        LabelError
            The store's labels are of another kind, such as numbers where the answers are texts.
        OutputError
            The store cannot be written.
        Busy
            Another process writes to the store, or works on the campaign.
        """
        with self.held():
            return write_answers(self._player)

    # answers

    def tell(self, ids: Iterable[int], labels: Iterable[Any], *, who: str | None = None, examples: bool = False) -> int:
        """Take answers, of some of the rows that were asked about, in any order.

        Parameters
        ----------
        ids : iterable of int
            Row numbers.
        labels : iterable
            Their labels.
        who : str, optional
            Who gives them; None: the user of this process.
        examples : bool, default False
            Rows that were not asked about are taken, too.

        Returns
        -------
        int
            How many are new; the same answer told twice is no error.

        Raises
        ------
        DataError
            A row was not asked about, or has another answer.
        LabelError
            A label is none of the classes.
        """
        rows, given = [row_number(row, "tell") for row in ids], list(labels)
        if len(rows) != len(given):
            raise UsageError(f"tell: expected a label for each of {len(rows)} rows, found {len(given)}")
        found = [Given(row, label, "label", "tell") for row, label in zip(rows, given, strict=True)]
        return self.answer(found, who=who, examples=examples)

    def correct(self, row: int, label: Any, *, who: str | None = None) -> int:
        """Change an answer; an attempt that was on the way is void.

        Parameters
        ----------
        row : int
            Its row.
        label : object
            The right label.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1, or 0 where that was its answer.
        """
        return self.answer([Given(row_number(row, "correct"), label, "correct", "correct")], who=who)

    def undo(self, row: int | None = None, *, who: str | None = None) -> int:
        """Take an answer back.

        Parameters
        ----------
        row : int, optional
            Its row; None: the one that ``who`` answered last.
        who : str, optional
            Who says so; None: the user of this process.

        Returns
        -------
        int
            1, or 0 where it was taken back before.
        """
        with self.held():
            if row is None:
                last = self.last_answer(who)
                if last is None:
                    raise UsageError(f"{self.path}: expected an answer of {name_of(who)} to take back, found none")
                row = last[0]
            return self.answer([Given(row_number(row, "undo"), None, "undo", "undo")], who=who)

    def skip(self, row: int, *, unsure: bool = False, who: str | None = None) -> int:
        """Put a question off: it is asked again when no other is left.

        Parameters
        ----------
        row : int
            Its row.
        unsure : bool, default False
            Nobody can tell the label: the row is not asked about again.
        who : str, optional
            Who says so.

        Returns
        -------
        int
            1, or 0 where that was said before.
        """
        action: Action = "unsure" if unsure else "skip"
        return self.answer([Given(row_number(row, action), None, action, action)], who=who)

    def answer(self, given: Iterable[Given], *, who: str | None = None, examples: bool = False) -> int:
        """Take what files of answers say: all of it, or nothing.

        Parameters
        ----------
        given : iterable of Given
            Rows, labels and actions.
        who : str, optional
            Who gives them.
        examples : bool, default False
            Rows that were not asked about are taken, too.

        Returns
        -------
        int
            How many are new.
        """
        with self.held():
            new = take(self._player, self._questions, given, name_of(who), examples=examples)
            self._settle()
        return new

    def follow(self, reports: Mapping[int, Report], *, examples: bool = False, strict: bool = False) -> Followed:
        """Bring the answers to what is said of rows in another program, as in Label Studio.

        What was answered there is taken, changed or taken back as it is there. Answers that were given here stay, and
        so does the answer about a row of which not all say the same there; such rows are told.

        Parameters
        ----------
        reports : mapping of int to Report
            By row, what is said of it now.
        examples : bool, default False
            Rows that were not asked about are taken, too.
        strict : bool, default False
            Take all of it or, where something cannot be taken, nothing; else all but that.

        Returns
        -------
        Followed
            How many answers are new, and what was not taken.

        Raises
        ------
        DataError
            With ``strict``, a row was not asked about.
        LabelError
            With ``strict``, a label is none of the classes.
        UsageError
            The campaign asks several people about each row.
        """
        refuse_several(self.facts.people)
        with self.held():
            follower = Follower(self._player.log, self._questions.open())
            known = {line.row for line in self._player.log.lines}
            asked = None if examples else frozenset(self._questions.asked) | known
            given, found = sorted_out(follower, reports, asked, strict=strict)
            try:
                found.new = self.answer(given, examples=examples)
            except DataError:
                if strict:
                    raise
                for one in given:
                    try:
                        found.new += self.answer([one], examples=examples)
                    except DataError as error:
                        found.refused.append(Refusal(one.row, str(error)))
        return found

    def run(
        self,
        oracle: Callable[[Sequence[int]], Mapping[int, Any]],
        *,
        batch: int = 1,
        most: int | None = None,
        who: str = "oracle",
    ) -> dict[str, Any]:
        """Ask and answer until the campaign ends, or no answer is known.

        Parameters
        ----------
        oracle : callable
            Labels by row of some of the rows it is given; where it has none for any of them, it is not asked about
            them again.
        batch : int, default 1
            Questions at a time.
        most : int, optional
            Stop at so many answers.
        who : str, default "oracle"
            Who gives them, for the log.

        Returns
        -------
        dict
            As ``status``; under ``unknown`` the rows that were asked about and whose labels the oracle has not.

        Raises
        ------
        LabelError
            All answers are the same, and draws have found no other.
        UsageError
            The campaign asks several people about each row.
        """
        if self.facts.people is not None:
            raise UsageError(
                f"{self.path}: asks {self.facts.people} people about each row (--people), and whoever answers all by "
                "itself is one of them; take in what each of them says with `coremargin active tell`"
            )
        unknown = set[int]()
        while self._player.state.status == "running" and (most is None or len(self._player.labels) < most):
            waiting = [one for one in self.ask(batch, again=True) if one.row not in unknown]
            left = batch if most is None else min(batch, most - len(self._player.labels))
            rows = [one.row for one in waiting or self.ask(left, who=who)][:left]
            if not rows:
                break
            labels = oracle(rows)
            if labels:
                self.tell(labels.keys(), labels.values(), who=who)
            else:
                unknown.update(rows)
        with self.held():
            self.stop()
            self._questions.refuse_one_class()
            return {**self.status, "unknown": sorted(unknown - set(self._player.labels))}
