"""The pytest plugin: one item per criterion of every claim under `claims/`, when pytest is pointed there.

In any other run (`pytest tests`, `pytest` alone) only the options exist. Roles under `-n W`: the workers fill
the store and judge; the controller, the only process of a serial run, checks what the user asked for, shows
plan and progress, and writes the report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repro import progress, source, suite, words
from repro.claim import KINDS, LEAST, Claim, Criterion, load
from repro.errors import UserError
from repro.recipe import RecipeError

if TYPE_CHECKING:
    from repro.trial import Trial

MISTAKES = (UserError, RecipeError)


class NotReproducedError(Exception):
    """A criterion that fails; the message says what was measured."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of a claims run."""
    group = parser.getgroup("repro", "claims (repro)")
    add = group.addoption
    add("--profile", help="smoke, cpu or paper; default: paper with CUDA, else cpu")
    add(
        "--seeds",
        type=int,
        metavar="N",
        help="seeds a trained or measured cell; default: the claim's protocol",
    )
    add(
        "--device",
        metavar="D",
        help="cpu, cuda or cuda:N; default: cuda for paper where there is one, else cpu",
    )
    add("--store", metavar="DIR", help="records and checkpoints; default: REPRO_STORE or .repro")
    add("--reports", metavar="DIR", help="default: reports")
    add("--budget", metavar="TIME", help="stop after 90s, 20m or 1.5h; the next run goes on from there")
    add("--strict-verdicts", action="store_true", help="inconclusive fails instead of being skipped")
    add("--deterministic", action="store_true", help="bit-identical repeats on CUDA too; slower")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take part only when every path on the command line lies in the claims folder."""
    folder = _folder(config)
    if folder is None:
        return
    worker = getattr(config, "workerinput", None)
    try:
        claims = suite.discover(folder)
        known = suite.markers(claims)
        for name, what in known.items():
            config.addinivalue_line("markers", f"{name}: {what}")
        settings = worker["repro"] if worker else asked(config, known)
    except MISTAKES as error:
        raise pytest.UsageError(str(error)) from None
    if worker and settings["device"] == "cuda":  # before anything imports torch
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = pick_gpu(worker["workerid"], visible)
    run = Run(config, claims, settings)
    config.pluginmanager.register(run, "repro-run")
    if not worker and config.pluginmanager.has_plugin("terminalreporter"):
        config.pluginmanager.register(Show(config, run), "repro-show")


def asked(config: pytest.Config, known: Collection[str]) -> dict[str, Any]:
    """Check everything the user asked for and return what it comes to, for this process and xdist's workers.

    Raises:
        UserError: anything that cannot be.
    """
    option, here = config.option, config.invocation_params.dir
    suite.check_expression(option.markexpr, known)
    suite.check_seeds(option.seeds)
    profile = suite.pick_profile(option.profile)
    device = suite.pick_device(option.device, profile)
    store = here / suite.store_folder(option.store, config.rootpath)
    reports = here / (option.reports or config.rootpath / "reports")
    suite.check_folder(store, "store", "--store")
    suite.check_folder(reports, "report folder", "--reports")
    if getattr(option, "maxschedchunk", 0) is None:
        option.maxschedchunk = 1  # xdist: items in order, cheap first
    return {
        "profile": profile,
        "device": device,
        "store": str(store),
        "reports": str(reports),
        "deadline": time.time() + suite.seconds(option.budget) if option.budget else None,
    }


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Make `-n auto` mean one worker a GPU, or one a processor core that this process may use."""
    if _folder(config) is None:
        return None
    try:
        profile = suite.pick_profile(config.option.profile)
        device = suite.pick_device(config.option.device, profile)
    except UserError:
        return 1  # pytest_configure says why
    if device == "cpu":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    import torch

    return 1 if ":" in device else torch.cuda.device_count()


def _folder(config: pytest.Config) -> Path | None:
    """Return the claims folder if every path on the command line lies in it."""
    folder = config.rootpath / "claims"
    paths = [config.invocation_params.dir / arg.split("::")[0] for arg in config.args]
    inside = bool(paths) and all(p.resolve().is_relative_to(folder.resolve()) for p in paths)
    return folder if inside else None


class Run:
    """A claims run in one process: collects, fills the store, judges."""

    def __init__(self, config: pytest.Config, claims: dict[str, Claim], settings: dict[str, Any]) -> None:
        from repro.store import Store

        self.config, self.claims, self.settings = config, claims, settings
        self.profile: str = settings["profile"]
        self.device: str = settings["device"]
        self.deadline: float | None = settings["deadline"]
        self.seeds: int | None = config.option.seeds
        owner = os.getppid() if hasattr(config, "workerinput") else None
        self.store = Store(Path(settings["store"]), owner=owner)
        self.rest: list[Trial] = []  # trials of the whole run that may still be missing

    def trials_of(self, claim: Claim, kind: str) -> list[Trial]:
        """Return the trials that the claim's criteria of one kind need."""
        protocol = claim.protocol(self.profile)
        if protocol is None:
            return []
        cells = suite.trials(claim, self.profile, self.seeds, self.device)
        return suite.with_starts(suite.by_seed(cells, suite.cells_of(protocol, kind)))

    def fill(self, trials: Sequence[Trial]) -> None:
        """Bring trials into the store; while others train them, help with the rest of the run."""
        self.rest = [trial for trial in self.rest if self.store.get(trial) is None]
        self.store.fill(
            trials,
            help_with=self.rest,
            deadline=self.deadline,
            deterministic=self.config.option.deterministic,
        )

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect a claim file that was found in a folder."""
        if parent.session.isinitpath(file_path):
            return None  # pytest's own collector asks pytest_pycollect_makemodule
        return self._collect(file_path, parent)

    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect a claim file that was named on the command line."""
        return self._collect(module_path, parent)

    def _collect(self, file: Path, parent: pytest.Collector) -> pytest.Collector | None:
        folder = self.config.rootpath / "claims"
        if file.suffix != ".py" or file.parent.parent != folder or file.name.startswith("_"):
            return None
        collector: ClaimFile = ClaimFile.from_parent(parent, path=file)
        collector.run = self
        return collector

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put identity first, then count, measure and train; within a kind the cheap claims."""

        def order(item: pytest.Item) -> tuple[int, int, str]:
            assert isinstance(item, Item)
            kind = item.criterion.kind
            return KINDS.index(kind), suite.work(item.claim, self.profile, kind), item.claim.id

        items.sort(key=order)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, bool, bool]:
        """Before the loop: what this run is about. After it: help the other workers to the end."""
        self.rest = suite.unique(
            trial for item in session.items if isinstance(item, Item) for trial in item.trials()
        )
        result = yield
        if hasattr(self.config, "workerinput") and not session.shouldstop and not session.shouldfail:
            with suppress(*MISTAKES):  # whoever owns the trial reports it
                self.fill(self.rest)
        return result


def pick_gpu(worker: str, visible: str | None) -> str:
    """Return the GPU of an xdist worker (`gw3`): the caller's visible ones in turn."""
    if visible is None:
        count = len([node for node in Path("/dev").glob("nvidia*") if node.name[6:].isdigit()])
        names = [str(i) for i in range(max(count, 1))]
    else:
        names = visible.split(",")
    return names[int(worker.removeprefix("gw")) % len(names)]


class ClaimFile(pytest.File):
    """A claim file: one claim."""

    run: Run

    def collect(self) -> Iterable[ClaimNode]:
        """Yield the claim."""
        claim = load(self.path)
        node: ClaimNode = ClaimNode.from_parent(self, name=claim.id, run=self.run, claim=claim)
        yield node


class ClaimNode(pytest.Collector):
    """A claim: one item per criterion of its protocol."""

    def __init__(self, *, run: Run, claim: Claim, **rest: Any) -> None:
        super().__init__(**rest)
        self.run, self.claim = run, claim

    def collect(self) -> Iterable[Item]:
        """Yield the criteria; a claim without this profile shows those of another, to be skipped."""
        protocol = self.claim.protocol(self.run.profile) or list(self.claim.profiles.values())[-1]
        for criterion in protocol.criteria:
            item: Item = Item.from_parent(
                self, name=criterion.name, run=self.run, claim=self.claim, criterion=criterion
            )
            yield item


class Item(pytest.Item):
    """One criterion."""

    def __init__(self, *, run: Run, claim: Claim, criterion: Criterion, **rest: Any) -> None:
        super().__init__(**rest)
        self.run, self.claim, self.criterion = run, claim, criterion
        self.user_properties.append(("claim", claim.id))
        for marker in (*claim.markers, criterion.kind):
            self.add_marker(marker)

    def trials(self) -> list[Trial]:
        """Return the trials that judging needs: those of all the claim's criteria of this kind."""
        return self.run.trials_of(self.claim, self.criterion.kind)

    def runtest(self) -> None:
        """Fill the store, judge, and end as the contract says."""
        run, claim = self.run, self.claim
        protocol = claim.protocol(run.profile)
        if protocol is None:
            _skip(f"not run: the claim has no {run.profile} profile; it has: {', '.join(claim.profiles)}.")
        assert protocol is not None
        wanted = self.trials()
        run.fill(wanted)
        missing = [trial for trial in wanted if run.store.get(trial) is None]
        if missing:
            _skip(
                f"not run: the budget of {self.config.option.budget} is spent and {len(missing)} of "
                f"{len(wanted)} trials are missing; the same command goes on from here."
            )
        judged = suite.decide(claim, run.profile, run.store, run.seeds, run.device)
        whole, records = judged.decision, judged.records
        decision = next(d for d in whole.decisions if d.name == self.criterion.name)
        if run.profile == "smoke":
            if reason := suite.absent(r for cell in records.values() for r in cell):
                _skip(f"not run: {reason}")
            if wrong := suite.smoke(self.criterion, protocol, records):
                raise NotReproducedError(wrong)
            self._say("mechanics work", decision)
            return
        self._say(decision.verdict, decision)
        what, why = suite.outcome(claim, decision, whole)
        if what == "inconclusive" and suite.crashed(self.criterion, protocol, records):
            what = "fail"
        if what == "xfail":
            if lacking := suite.unproven(claim, run.store, Path(run.settings["reports"])):
                raise NotReproducedError(f"{decision.verdict}: {lacking}")
            pytest.xfail(f"known deviation: {why}")
        if what in ("fail", "xfail") or (what == "inconclusive" and self.config.option.strict_verdicts):
            raise NotReproducedError(f"{decision.verdict}: {why}")
        if what != "pass":
            _skip(f"{what}: {why}")

    def _say(self, verdict: str, decision: Any) -> None:
        figures = words.measured(decision, self.criterion)
        self.user_properties.append(("says", f"{verdict}: {figures}, band: {words.band(self.criterion)}"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return one sentence for what a user can read or mend; a traceback only for our own bugs."""
        if isinstance(excinfo.value, (NotReproducedError, *MISTAKES)):
            return f"{_name(self.nodeid)}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where pytest says that the item is."""
        return self.path, 0, _name(self.nodeid)


def _name(node_id: str) -> str:
    """Return `claim::criterion`."""
    return node_id.split("::", 1)[-1]


def _skip(reason: str) -> None:
    raise pytest.skip.Exception(reason, _use_item_location=True)


class Show:
    """The controller's side: plan, live progress, verdict lines, report, table."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.run, self.config = run, config
        self.screen = progress.Screen()
        self.reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self.watch: progress.Watch | None = None
        self.open: dict[str, set[str]] = {}  # claim → its items without an outcome
        self.reports = Path(run.settings["reports"])
        self.selected: dict[str, set[str]] = {}  # claim → keys of its trials
        self.missing: set[str] = set()  # keys that the store lacked at the start
        self.problems: list[str] = []

    # selection and plan

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand what the user asked for to a worker."""
        node.workerinput["repro"] = self.run.settings

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Begin a serial run."""
        if not session.testsfailed:
            self.begin([_name(item.nodeid) for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Begin a parallel run, at the first worker's word: all collect the same."""
        if not self.open:
            self.begin([_name(node_id) for node_id in ids])

    def begin(self, names: Sequence[str]) -> None:
        """Print the plan for the selected criteria (`claim::criterion`) and start to watch."""
        if self.config.option.collectonly or not names:
            return
        for name in names:
            self.open.setdefault(name.partition("::")[0], set()).add(name)
        try:
            plan = {claim: self._trials(claim) for claim in self.open}
            every = suite.unique(trial for some in plan.values() for trial in some)
            for trial in every:
                source.check_arguments(trial.recipe, source.root())
            committed = suite.Committed(self.reports / self.run.profile / "records")
            workers = int(getattr(self.config.option, "numprocesses", None) or 1)
            self.watch = progress.Watch(self.run.store, every, self.screen, workers, committed.past)
        except MISTAKES as error:
            raise pytest.UsageError(str(error)) from None
        self.missing = {trial.key for trial in self.watch.waiting}
        self.selected = {claim: {trial.key for trial in some} for claim, some in plan.items()}
        with self.alone():
            if self.screen.live:
                self.reporter.write("\r\x1b[K")  # xdist's count of workers
            self.reporter.write_line(
                f"plan: {_count(len(plan), 'claim')}, {_count(len(names), 'criterion', 'criteria')}, "
                f"profile {self.run.profile} on {self.run.device}, store {_short(self.run.store.root)}"
            )
            for claim, some in plan.items():
                self.reporter.write_line(f"  {claim}: {self.watch.plan(some, 1)}")
            self.reporter.write_line(
                f"  all with {_count(workers, 'worker')}: {self.watch.plan(every, workers)}"
            )
            if (self.run.seeds or LEAST) < LEAST and self.run.profile != "smoke":
                self.reporter.write_line(
                    f"  note: --seeds {self.run.seeds} decides no trained claim; that takes {LEAST} or more"
                )
        self.reporter.showfspath = False  # verdict lines take the place of dots
        self.watch.start()

    def _trials(self, claim: str) -> list[Trial]:
        """Return the trials of the claim's selected criteria."""
        protocol = self.run.claims[claim].protocol(self.run.profile)
        criteria = protocol.criteria if protocol else ()
        kinds = {c.kind for c in criteria if f"{claim}::{c.name}" in self.open[claim]}
        return suite.unique(
            t for kind in KINDS if kind in kinds for t in self.run.trials_of(self.run.claims[claim], kind)
        )

    # verdicts, as they come

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the status lines out of what pytest writes, and leave whole, flushed lines."""
        with self.screen.alone():
            yield
            self.reporter.ensure_newline()
            self.reporter.flush()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, Any, Any]:
        """Let pytest write undisturbed."""
        with self.alone():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, Any]:
        """Count the outcomes as pytest does, but print no dots."""
        status = yield
        return (status[0], "", "") if _claim(report) else status

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, Any, Any]:
        """Print the verdict of a criterion, and of its claim once all selected criteria have theirs."""
        claim, name = _claim(report), _name(report.nodeid)
        if claim and self.watch is not None and report.when == "call":
            # its trials first; not inside `alone`, for which the watching thread may wait while it looks
            self.watch.look(time.time())
        with self.alone():
            result = yield
            if claim and (report.when == "call" or not report.passed):
                self.reporter.write_line(f"{_word(report)} {name} | {_says(report)}")
            if claim and report.when == "teardown" and claim in self.open:
                self.open[claim].discard(name)
                if not self.open[claim]:
                    self._decided(claim)
        return result

    def _decided(self, name: str) -> None:
        run = self.run
        try:
            whole = suite.decide(run.claims[name], run.profile, run.store, run.seeds, run.device).decision
            self.reporter.write_line(f"{name} | {whole.verdict} at profile {run.profile}: {whole.reason}")
        except MISTAKES as error:
            self.problems.append(str(error))
        records = run.store.root / "records"
        if any((records / f"{key}.json").exists() for key in self.selected[name] & self.missing):
            self._report()  # this run added to what is known

    def _report(self) -> None:
        run = self.run
        try:
            seeds = dict.fromkeys(self.selected, run.seeds)
            found = suite.write_report(run.claims, run.profile, run.store, self.reports, seeds, run.device)
        except MISTAKES as error:
            found = [str(error)]
        self.problems = list(dict.fromkeys([*self.problems, *found]))

    # the end

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Say what to do when a worker was killed."""
        report.longrepr = (
            f"{report.longrepr}: it was killed, perhaps for want of memory (then use fewer workers, -n). "
            "Nothing is lost: the same command goes on."
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Stop the thread and write the report: also after an interrupt, with what there is."""
        if self.watch is None:
            return
        self.watch.stop()
        self._report()
        if self.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table of the selected claims, what went wrong, and where the report is."""
        if self.watch is None:
            return
        from tabulate import tabulate

        from repro.report import LABELS

        run = self.run
        rows: list[list[Any]] = []
        for name in self.selected:
            protocol = run.claims[name].protocol(run.profile)
            criteria = {c.name: c for c in protocol.criteria} if protocol else {}
            try:
                whole = suite.decide(run.claims[name], run.profile, run.store, run.seeds, run.device).decision
            except MISTAKES:  # among the problems
                continue
            rows.append([name, whole.verdict, "", "", ""])
            for d in whole.decisions:
                c = criteria[d.name]
                rows.append([f"· {d.name}", d.verdict, words.measured(d, c), words.band(c), d.paper])
        terminalreporter.section(" | ".join(["verdicts", run.profile, LABELS[run.profile]]))
        terminalreporter.write_line(
            tabulate(rows, ["claim, criteria", "verdict", "measured", "band", "paper"], missingval="–")
        )
        for problem in self.problems:
            terminalreporter.write_line(f"problem: {problem}", red=True)
        terminalreporter.write_line(f"report: {_short(self.reports / run.profile / 'README.md')}")

    def pytest_unconfigure(self) -> None:
        """Give the terminal back."""
        if self.watch is not None:
            self.watch.stop()
        self.screen.close()


def _claim(report: Any) -> str:
    """Return the claim's id of an item's report, or nothing."""
    return dict(getattr(report, "user_properties", ())).get("claim", "")


def _word(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "XFAIL"
    return {"passed": "PASS", "failed": "FAIL", "skipped": "SKIP"}[report.outcome]


def _says(report: pytest.TestReport) -> str:
    """Return the item's own words, and why it did not pass."""
    says = dict(report.user_properties).get("says", "")
    why = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        why = report.longrepr[2].removeprefix("Skipped: ")
    elif report.failed and "\n" not in str(report.longrepr):
        why = str(report.longrepr).partition(": ")[2]
    return " | ".join(filter(None, [str(says), getattr(report, "wasxfail", ""), why]))


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _short(path: Path) -> str:
    """Return the path from here if it lies below, else in full."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
