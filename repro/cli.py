"""The command line: `repro list | show | plan | run | report | doctor | restamp`."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro import suite, words
from repro.claim import PROFILES, Claim, Criterion, Protocol
from repro.errors import UserError
from repro.recipe import Recipe, RecipeError

if TYPE_CHECKING:
    from repro.store import Store
    from repro.trial import Trial

EXITS = """exit status:
  0  done; `run`: nothing failed
  1  `run`: a claim did not reproduce; `doctor`: a problem; `restamp`: a record that was not restamped
  2  a mistake in the command, an unknown claim, or something that cannot be read or written
  otherwise, from `run`: pytest's own (4: a mistake in an option, 5: nothing selected)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks our signs gets their codes
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.command != "run":
        parser.error(f"unknown argument {rest[0]}")
    options.rest = rest
    try:
        return int(options.call(options))
    except (UserError, RecipeError) as error:
        print(f"repro: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `repro list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="repro", description=__doc__, epilog=EXITS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(call: Any, what: str, *options: str, claims: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(call.__name__.strip("_"), help=what, description=what)
        sub.set_defaults(call=call)
        if claims:
            sub.add_argument("claims", nargs=claims, metavar="CLAIM", help="id such as paper.name")
        for option in options:
            name, kind, text = OPTIONS[option]
            sub.add_argument(name, type=kind, help=text)
        return sub

    command(_list, "List the claims.").add_argument("--json", action="store_true", help="machine-readable")
    command(_show, "Show claims: statement, criteria and bands, controls, recipes.", claims="+")
    command(
        _plan,
        "Show what running claims would take; nothing is run.",
        *("profile", "seeds", "device", "store", "reports", "rate"),
        claims="+",
    )
    command(_run, "Run claims with pytest; further options go to pytest.", claims="+")
    command(_report, "Rebuild reports from the store; never trains.", *OPTIONS.keys() - {"rate", "steps"})
    command(_doctor, "Check this machine.", "store", "reports")
    command(
        _restamp,
        "Re-key records whose code changed without a change in what it computes, shown by a replay.",
        *("profile", "seeds", "device", "store", "steps"),
        claims="+",
    )
    return parser


OPTIONS: Mapping[str, tuple[str, Any, str]] = {
    "profile": ("--profile", str, "smoke, cpu or paper; default: paper with CUDA, else cpu"),
    "seeds": ("--seeds", int, "seeds a cell; default: the claim's protocol"),
    "device": ("--device", str, "cpu, cuda or cuda:N; default: cuda for paper where there is one, else cpu"),
    "store": ("--store", str, "default: REPRO_STORE or .repro"),
    "reports": ("--reports", str, "default: reports"),
    "rate": ("--rate", float, "FLOP/s that a trial is taken to reach; default: 1e10 on cpu, 1e13 on cuda"),
    "steps": ("--steps", int, "steps to replay; default: 100"),
}


def _claims() -> dict[str, Claim]:
    return suite.discover(suite.claims_folder())


def _open_store(given: str | None) -> Store:
    from repro.store import Store

    folder = suite.store_folder(given, Path.cwd())
    suite.check_folder(folder, "store", "--store")
    return Store(folder)


def _table(rows: Sequence[Sequence[object]], headers: Sequence[str]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers, disable_numparse=True, missingval="–", maxcolwidths=70)


# --- list and show


def _list(options: argparse.Namespace) -> int:
    claims = _claims()
    if options.json:
        print(json.dumps([_entry(claim) for claim in claims.values()], indent=1))
        return 0
    rows = [
        ["*" if c.headline else "", c.id, ", ".join(c.kinds), ", ".join(c.profiles), c.title]
        for c in claims.values()
    ]
    print(_table(rows, ["", "claim", "kinds", "profiles", "title"]))
    print("\n* headline claims, run by `make claims`")
    return 0


def _entry(claim: Claim) -> dict[str, Any]:
    names = ("id", "paper", "title", "source", "statement", "headline")
    return {
        **{name: getattr(claim, name) for name in names},
        "kinds": claim.kinds,
        "markers": claim.markers,
        "profiles": list(claim.profiles),
        "criteria": {p: [c.name for c in protocol.criteria] for p, protocol in claim.profiles.items()},
        "known_deviation": claim.known_deviation.reason if claim.known_deviation else None,
    }


def _show(options: argparse.Namespace) -> int:
    for claim in suite.find(_claims(), options.claims):
        print(f"{claim.id}: {claim.title}\n{claim.paper}, {claim.source}\n\n{claim.statement}")
        for title, lines in (("choices", claim.choices), ("notes", claim.notes)):
            if lines:
                print(f"\n{title}:" + "".join(f"\n  - {line}" for line in lines))
        if claim.known_deviation:
            print(f"\nknown deviation: {claim.known_deviation.reason}")
        for name, protocol in claim.profiles.items():
            print(f"\n--- profile {name}" + (f": {protocol.scale}" if protocol.scale else ""))
            print(_protocol(protocol))
        print(f"\nrun it: repro run {claim.id}    or: pytest claims -m {claim.markers[0]}\n")
    return 0


def _protocol(protocol: Protocol) -> str:
    rows = [
        [
            c.name + (" (premise)" if c.premise else ""),
            c.kind,
            _judges(c),
            words.band(c),
            c.paper,
            c.statement,
        ]
        for c in protocol.criteria
    ]
    blocks = [_table(rows, ["criterion", "kind", "value", "band", "paper", "statement"])]
    if protocol.controls:
        rows = [
            [c.name, c.criterion, ", ".join(f"{old} → {new}" for old, new in c.swap.items())]
            for c in protocol.controls
        ]
        blocks.append(_table(rows, ["control (must come out not reproduced)", "criterion", "cells swapped"]))
    if protocol.shown:
        rows = [
            [s.label, f"{s.metric} of {s.cell}" + (f" − {s.rival}" if s.rival else ""), s.paper]
            for s in protocol.shown
        ]
        blocks.append(_table(rows, ["shown, not judged", "value", "paper"]))
    first, *others = protocol.cells
    base = protocol.cells[first]
    blocks.append(_table(list(words.settings(base).items()), [f"recipe of {first}, {_seeds(protocol)}", ""]))
    if others:
        rows = [[cell, _differences(base, protocol.cells[cell])] for cell in others]
        blocks.append(_table(rows, ["other cells", f"what differs from {first}"]))
    return "\n\n".join(blocks)


def _seeds(protocol: Protocol) -> str:
    few = protocol.shown_seeds
    return f"{protocol.seeds} seeds" + ("" if few is None else f", {few} for a cell that is only shown")


def _judges(c: Criterion) -> str:
    own = f"{c.metric} of {c.cell}"
    return own if c.rival is None else f"{own} {'/' if c.ratio else '−'} {c.rival}"


def _differences(base: Recipe, other: Recipe) -> str:
    lines = [f"{key}: {old} → {new}" for key, old, new in words.differences(base, other)]
    return "\n".join(lines) or "nothing"


# --- plan

PLAN = ("cell", "trials", "in store", "steps", "FLOPs a trial", "time a trial", "memory", "counted by")


def _plan(options: argparse.Namespace) -> int:
    from repro import plan, source

    claims = suite.find(_claims(), options.claims)
    profile = suite.pick_profile(options.profile)
    device = suite.pick_device(options.device, profile)
    suite.check_seeds(options.seeds)
    if options.rate is not None and not 0 < options.rate < math.inf:
        raise UserError(f"--rate {options.rate:g} is no speed; give FLOP/s above 0, such as 1e10.")
    rate = options.rate or plan.RATES[device.partition(":")[0]]
    store = _open_store(options.store)
    committed = suite.Committed(Path(options.reports or "reports") / profile / "records")
    total, unknown = 0.0, 0
    with plan.Counter() as counter:
        for claim in claims:
            protocol = claim.protocol(profile)
            if protocol is None:
                print(f"{claim.id}: no {profile} profile; it has: {', '.join(claim.profiles)}.\n")
                continue
            rows = []
            for cell, trials in suite.trials(claim, profile, options.seeds, device).items():
                recipe = protocol.cells[cell]
                source.check_arguments(recipe, source.root())
                waiting, seconds = _stored(trials, store, committed)
                if recipe.stages:  # minutes, for large models
                    print(f"counting a step of {claim.id} {cell}", file=sys.stderr, flush=True)
                estimate, basis, stages = counter.count(recipe), "records", recipe.stages
                start = trials[0].start
                if start is not None and (store.get(start) is None or store.has_end(start)):
                    estimate = estimate.after(counter.count(start.recipe), start.cell)
                    stages = stages[len(start.recipe.stages) :]
                if seconds is None and recipe.stages:
                    seconds, basis = estimate.seconds(rate), "FLOPs"
                total += waiting * (seconds or 0.0)
                unknown += waiting * (seconds is None)
                rows.append(
                    [
                        *(cell, len(trials), len(trials) - waiting, sum(s.steps for s in stages)),
                        "unknown" if estimate.flops is None else f"{estimate.flops:.3g}",
                        "unknown" if seconds is None else f"{words.duration(seconds)} ({basis})",
                        "–" if estimate.memory is None else words.size(estimate.memory),
                        estimate.how,
                    ]
                )
            print(f"{claim.id}, profile {profile} on {device}\n{_table(rows, PLAN)}\n")
    more = f" and {unknown} trials of unknown length" if unknown else ""
    print(f"still to run: {words.duration(total)} of one worker{more}.")
    print(f"FLOPs are taken at {words.num(rate)} FLOP/s (--rate).")
    print("FLOPs and memory: training steps only, without the measures after them.")
    return 0


def _stored(trials: Sequence[Trial], store: Store, committed: suite.Committed) -> tuple[int, float | None]:
    """Return how many of a cell's trials are not done, and the seconds of one by records, also old ones."""
    from repro.progress import Costs

    costs, waiting = Costs(), 0
    for trial in trials:
        record = store.get(trial)
        waiting += record is None or record.status != "done"
        costs.learn(record or (store.stale(trial) or (None,))[0] or committed.past(trial), trial)
    return waiting, costs.of(trials[0])


# --- run and report


def _run(options: argparse.Namespace) -> int:
    claims = suite.find(_claims(), options.claims)
    marks = " or ".join(claim.markers[0] for claim in claims)
    sys.stdout.flush()
    # pytest takes the place of this process: signals reach it, and nobody ends it while it saves a checkpoint
    pytest = [sys.executable, "-m", "pytest", str(suite.claims_folder()), "-m", marks, *options.rest]
    os.execv(sys.executable, pytest)


def _report(options: argparse.Namespace) -> int:
    claims, store = _claims(), _open_store(options.store)
    suite.check_seeds(options.seeds)
    reports = Path(options.reports or "reports").absolute()
    suite.check_folder(reports, "report folder", "--reports")
    one = options.profile is not None
    profiles = [suite.pick_profile(options.profile)] if one else _recorded(claims, store)
    devices = [suite.pick_device(options.device, profile) for profile in profiles]
    status = 0
    for profile, device in zip(profiles, devices, strict=True):
        seeds = dict.fromkeys(claims, options.seeds)
        for problem in suite.write_report(claims, profile, store, reports, seeds, device):
            print(f"repro: {problem}", file=sys.stderr)
            status = 2
        print(f"report: {reports / profile / 'README.md'}")
    return status


def _recorded(claims: Mapping[str, Claim], store: Store) -> list[str]:
    """Return the profiles of which the store holds a record, or else the default one."""
    found = [
        profile
        for profile in PROFILES
        for device in [suite.pick_device(None, profile)]
        if any(
            store.get(trial) is not None
            for claim in claims.values()
            if "every" not in claim.profiles
            for trials in suite.trials(claim, profile, None, device).values()
            for trial in trials
        )
    ]
    return found or [suite.pick_profile(None)]


# --- doctor


def _doctor(options: argparse.Namespace) -> int:
    """Print one line a check; return 1 if any of them is a problem."""
    problems = 0
    for name, (text, remedy) in _checks(options):
        problems += bool(remedy)
        print(f"{'problem' if remedy else 'ok     '}  {name}: {text}" + (f"; {remedy}" if remedy else ""))
    return 1 if problems else 0


Check = tuple[str, tuple[str, str]]  # name, (what is found, the remedy or "")


def _checks(options: argparse.Namespace) -> Iterator[Check]:
    yield (
        "python",
        (sys.version.split()[0], "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer"),
    )
    yield "torch", _torch()
    yield "cuda", (_cuda(), "")
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("g++", "clang++"))), None)
    yield "compiler", (compiler or "none found: compiled steps of models run in plain torch, slower", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield "cores", (f"{cores}: use -n {cores}", "")
    folder = suite.store_folder(options.store, Path.cwd())
    place = next(p for p in (folder, *folder.parents) if os.path.exists(p))  # noqa: PTH110  (no OSError)
    free = shutil.disk_usage(place).free / 2**30
    yield (
        "disk space",
        (f"{free:.1f} GiB free at {place}", "free some space or use --store" if free < 1 else ""),
    )
    try:
        claims = _claims()
        yield "claims", (f"{len(claims)} found", "")
    except UserError as error:
        claims = {}
        yield "claims", (str(error).rstrip("."), "mend the claim file")
    try:
        store = _open_store(options.store)
        yield "store", (f"{folder} can be read and written", "")
    except UserError as error:
        yield "store", (str(error).rstrip("."), "then run `repro doctor` again")
    else:
        yield "records", _records(store.root / "records")
        yield "stale records", _stale(claims, store)
    try:
        reports = Path(options.reports or "reports").absolute()
        suite.check_folder(reports, "report folder", "--reports")
        yield "reports", (f"{reports} can be written", "")
        for folder in sorted(reports.glob("*/records")):
            yield f"records of {folder.parent.name} report", _records(folder)
    except UserError as error:
        yield "reports", (str(error).rstrip("."), "then run `repro doctor` again")


def _torch() -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("torch")
    except PackageNotFoundError:
        return "not installed", "run `make setup`"
    pins = Path(__file__).resolve().parents[1] / "constraints.txt"
    if not pins.is_file():
        return found, ""
    pin = next((p[7:].strip() for p in pins.read_text().splitlines() if p.startswith("torch==")), found)
    if found.partition("+")[0] == pin:
        return f"{found}, as pinned", ""
    return f"{found}, but constraints.txt pins {pin}", "run `make setup`"


def _cuda() -> str:
    if not suite.has_cuda():
        return "none; the default profile is cpu"
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{', '.join(names)}; the default profile is paper"


def _records(folder: Path) -> tuple[str, str]:
    from repro.record import Record

    files = sorted(folder.glob("*.json"))
    corrupt = []
    for file in files:
        try:
            if Record.from_json(file.read_text()).key != file.stem:
                corrupt.append(file)
        except (OSError, ValueError):
            corrupt.append(file)
    if corrupt:
        names = ", ".join(str(file) for file in corrupt[:3])
        return f"{len(corrupt)} of {len(files)} cannot be read: {names}", "delete them or move them away"
    return f"{len(files)}, all readable", ""


def _stale(claims: Mapping[str, Claim], store: Store) -> tuple[str, str]:
    found: dict[str, set[str]] = {}
    for claim in claims.values():
        for profile in PROFILES:
            for trial in _every(claim, profile):
                try:
                    stale = store.stale(trial)
                except UserError:  # among the corrupt ones
                    continue
                if stale is not None:
                    found.setdefault(claim.id, set()).update(stale[1])
    if not found:
        return "none", ""
    changed = "; ".join(f"{claim} ({', '.join(sorted(files))} changed)" for claim, files in found.items())
    return f"of {changed}", "run these claims again, or `repro restamp` them after a pure refactor"


def _every(claim: Claim, profile: str) -> list[Trial]:
    device = suite.pick_device(None, profile)
    return [trial for trials in suite.trials(claim, profile, None, device).values() for trial in trials]


# --- restamp


def _restamp(options: argparse.Namespace) -> int:
    claims = suite.find(_claims(), options.claims)
    profile = suite.pick_profile(options.profile)
    device = suite.pick_device(options.device, profile)
    suite.check_seeds(options.seeds)
    if options.steps is not None and options.steps < 1:
        raise UserError(f"--steps {options.steps} replays nothing; give 1 or more.")
    store = _open_store(options.store)
    steps = {} if options.steps is None else {"steps": options.steps}
    good = bad = 0
    for claim in claims:
        for trial in suite.by_seed(suite.trials(claim, profile, options.seeds, device)):
            if store.stale(trial) is None:
                continue
            name = f"{claim.id} {trial.cell} seed {trial.seed}"
            try:
                store.restamp(trial, **steps)
                good += 1
                print(f"restamped  {name}")
            except (UserError, RecipeError) as error:
                bad += 1
                print(f"not        {name}: {error}")
    print(f"{good} restamped, {bad} not.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
