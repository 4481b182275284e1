"""What code a recipe reaches and whether its arguments fit, read from the source: nothing is imported."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from repro.recipe import Part, Recipe, RecipeError

ENGINE = "engine.py"  # beside this file: a change of how trials are trained and measured changes every record
WITH_MODEL = ("model", "task", "generator")  # what a measure is given when the recipe has a model
ALONE = ("generator", "device")  # and when it has none
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def root() -> Path:
    """Return the folder that holds the first-party packages."""
    return Path(__file__).resolve().parent.parent


@cache
def _parse(file: Path) -> ast.Module:
    """Return the syntax tree of `file`, read once in a process.

    Reading once is what a long run needs: the modules it has imported do not change either when someone edits
    their files meanwhile.
    """
    try:
        return ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        raise RecipeError(f"{file} is no valid Python (line {error.lineno}: {error.msg}); mend it.") from None


def forget() -> None:
    """Read every file anew from now on (for tests that edit code)."""
    for remembered in (_parse, digest, _imports, _beside):
        remembered.cache_clear()


@cache
def digest(file: Path) -> str:
    """Return 16 hexadecimal digits for `file`: of Python, comments, layout and docstrings do not count."""
    if file.suffix != ".py":
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    text = json.dumps(_shape(_parse(file)), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shape(node: object) -> object:
    """Return a syntax tree as nested lists that do not depend on the Python version's way of printing one."""
    if isinstance(node, list):
        return [_shape(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    shape: list[object] = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if (
            name == "body"
            and isinstance(node, _DOCUMENTED)
            and ast.get_docstring(node, clean=False) is not None
        ):
            value = value[1:]
        if value is not None and value != [] and name not in ("ctx", "kind", "type_comment"):
            shape.append([name, _shape(value)])
    return shape


def _file(module: str, root: Path) -> Path | None:
    """Return the file of the dotted `module` under `root`, or None."""
    base = root.joinpath(*module.split("."))
    for file in (base / "__init__.py", base.with_name(base.name + ".py")):
        if file.is_file():
            return file
    return None


def _split(path: str, root: Path) -> tuple[str, str] | None:
    """Split a dotted path into its longest module, if there is one, and the name inside it ("" for none)."""
    names = path.split(".")
    for end in range(len(names), 1, -1):
        if _file(".".join(names[:end]), root) is not None:
            return ".".join(names[:end]), ".".join(names[end:])
    return None


@cache
def _imports(module: str, file: Path) -> tuple[str, ...]:
    """Return dotted names that `module` imports anywhere in its code; some may be names inside a module."""
    names: list[str] = []
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)


@cache
def _beside(file: Path) -> tuple[Path, ...]:
    """Return the files beside `file` that a string in its code names, such as C++ that it compiles."""
    strings = {node.value for node in ast.walk(_parse(file)) if isinstance(node, ast.Constant)}
    named = [s for s in strings if isinstance(s, str) and 0 < len(s) < 100 and Path(s).name == s]
    return tuple(p for p in map(file.with_name, named) if p.suffix != ".py" and p.is_file())


def reached(paths: Iterable[str], root: Path) -> tuple[Path, ...]:
    """Return the files that the dotted `paths` reach by imports, inside the packages that they begin with.

    With them come the files that lie beside a module and that its code names (`"kernels.cpp"`).

    Raises:
        RecipeError: a path that names no module under `root`.
    """
    paths = tuple(paths)
    packages = {path.partition(".")[0] for path in paths}
    todo = []
    for path in paths:
        found = _split(path, root)
        if found is None:
            raise RecipeError(f"no module for {path} under {root}; correct the path.")
        todo.append(found[0])
    seen: dict[str, Path] = {}
    while todo:
        name = todo.pop()
        parts = name.split(".")
        if parts[0] not in packages:
            continue
        for end in range(1, len(parts) + 1):  # importing a.b.c runs a and a.b first
            module = ".".join(parts[:end])
            file = _file(module, root)
            if file is not None and module not in seen:
                seen[module] = file
                todo.extend(_imports(module, file))
    return tuple(sorted({*seen.values(), *(p for file in seen.values() for p in _beside(file))}))


def _strings(value: Any) -> Iterator[str]:
    """Yield every string inside the arguments of a part."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item)


def _paths(parts: Iterable[Part], root: Path) -> Iterator[str]:
    """Yield the dotted paths of `parts`, and those that their arguments name (`model="package.models.X"`)."""
    parts = tuple(parts)
    packages = tuple(part.path.partition(".")[0] + "." for part in parts)
    for part in parts:
        yield part.path
        for text in _strings(part.args):
            if text.startswith(packages) and text.replace(".", "").isidentifier() and _split(text, root):
                yield text


def fingerprint(recipe: Recipe, root: Path, parts: Iterable[Part] | None = None) -> dict[str, str]:
    """Return file (relative to `root`) → digest for all code that the recipe (or only `parts` of it) reaches.

    The engine that trains and measures is always among them.

    Raises:
        RecipeError: a path that names no module.
    """
    files = {
        str(file.relative_to(root)): digest(file)
        for file in reached(_paths(recipe.parts if parts is None else parts, root), root)
    }
    engine = Path(__file__).resolve().with_name(ENGINE)
    return dict(sorted({**files, f"repro/{ENGINE}": digest(engine)}.items()))


# --- arguments


@dataclass(frozen=True)
class _Signature:
    """Arguments that can be given by name → whether they must be; `open` when others are taken or unknown."""

    names: Mapping[str, bool]
    open: bool = False


_UNKNOWN = _Signature({}, open=True)


def check_arguments(recipe: Recipe, root: Path) -> None:
    """Compare the arguments of every part of `recipe` with what its class or function takes.

    A mapping inside the arguments with just the keys "path" and "args" is checked as a part of its own.

    Raises:
        RecipeError: a module, class or function that does not exist, an unknown argument, or a missing one.
    """
    given = WITH_MODEL if recipe.model is not None else ALONE
    for name in ("task", "model"):
        _check(getattr(recipe, name), name, root)
    for i, stage in enumerate(recipe.stages):
        _check(stage.algorithm, f"stages[{i}].algorithm", root)
    _check(recipe.validation, "validation", root, given)
    for i, measure in enumerate(recipe.measures):
        _check(measure, f"measures[{i}]", root, given)


def _check(part: Part | None, where: str, root: Path, given: tuple[str, ...] = ()) -> None:
    """Check one part; `given` are the arguments that the engine adds."""
    if part is None:
        return
    signature = _signature(part.path, where, root)
    known = [name for name in signature.names if name not in given]
    for name in part.args:
        if name in given:
            raise RecipeError(f"{where}: the engine gives '{name}' to {part.path}; leave it out.")
        if name not in signature.names and not signature.open:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"it takes: {', '.join(known) or 'none'}."
            raise RecipeError(f"{where}: {part.path} has no argument '{name}'; {hint}")
    for name in given:
        if name not in signature.names and not signature.open:
            raise RecipeError(
                f"{where}: {part.path} must take '{name}'; a measure of this recipe is called with "
                f"{', '.join(given)}."
            )
    for name, required in signature.names.items():
        if required and name not in part.args and name not in given:
            raise RecipeError(f"{where}: {part.path} needs the argument '{name}'; add it.")
    for inner, place in _nested(part.args, where):
        _check(inner, place, root)


def _nested(value: Any, where: str) -> Iterator[tuple[Part, str]]:
    """Yield parts written as mappings inside arguments, with their place."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, Mapping) and set(item) == {"path", "args"}:
                yield Part(path=item["path"], args=item["args"]), f"{where}.{key}"
            else:
                yield from _nested(item, f"{where}.{key}")
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _nested({str(i): item}, where)


def _signature(path: str, where: str, root: Path) -> _Signature:
    """Return what the class or function at the dotted `path` takes."""
    found = _split(path, root)
    if found is None:
        raise RecipeError(f"{where}: no module for {path} under {root}; correct the path.")
    module, name = found
    answer = _named(module, name, root) if name and "." not in name else None
    if answer is None:
        names = [n.name for n in _parse(_existing(module, root)).body if isinstance(n, _DOCUMENTED)]
        raise RecipeError(
            f"{where}: {module} defines no class or function '{name}'; "
            f"it defines: {', '.join(n for n in names if not n.startswith('_')) or 'none'}."
        )
    return answer


def _existing(module: str, root: Path) -> Path:
    file = _file(module, root)
    assert file is not None
    return file


def _named(module: str, name: str, root: Path) -> _Signature | None:
    """Return the signature of `name` in `module`, following first-party imports; None if it is not there."""
    file = _file(module, root)
    if file is None:  # a third-party module
        return _UNKNOWN
    for node in _top(_parse(file)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class(node, module, root)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _function(node.args)
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return _UNKNOWN
        if isinstance(node, ast.ImportFrom):
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _named(base, alias.name, root)
    return None


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module outside functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If | ast.Try):
            yield from _top(child)


def _function(arguments: ast.arguments, skip: int = 0) -> _Signature:
    """Return the signature of a function; `skip` leaves out `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    names = {
        a.arg: i < first_default
        for i, a in enumerate(positional)
        if i >= max(skip, len(arguments.posonlyargs))
    }
    names |= {a.arg: d is None for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    return _Signature(names, open=arguments.kwarg is not None)


def _class(node: ast.ClassDef, module: str, root: Path) -> _Signature:
    """Return what the class takes: its `__init__`, else its dataclass fields, else what its base takes."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _function(item.args, skip=1)
    bases = [_named(module, base.id, root) if isinstance(base, ast.Name) else None for base in node.bases]
    inherited: dict[str, bool] = {}
    for base in reversed(bases):
        inherited |= (base or _UNKNOWN).names
    is_open = any(base is None or base.open for base in bases)
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return _Signature({**inherited, **_fields(node)}, open=is_open)
    return _Signature(inherited, open=is_open)


def _fields(node: ast.ClassDef) -> dict[str, bool]:
    """Return the dataclass fields that a class declares itself → whether they must be given."""
    fields: dict[str, bool] = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        kind = ast.unparse(item.annotation)
        if "ClassVar" in kind or kind.endswith("KW_ONLY"):
            continue
        required, value = item.value is None, item.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
            options = {k.arg: ast.unparse(k.value) for k in value.keywords}
            if options.get("init") == "False":
                continue
            required = not {"default", "default_factory"} & set(options)
        fields[item.target.id] = required
    return fields
