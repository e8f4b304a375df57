"""Loads the hooks of a worker: those of the settings in their order, then those of installed packages by name.

A tool that cannot be loaded is left out; a hook is not, since calls would run without it. So all problems of all hooks
are one error, before the worker starts.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from holdfast.activities.hooks.decorators import find_mark
from holdfast.activities.hooks.hook_chain import Hook, Hooks
from holdfast.activities.hooks.hook_io import clean_text
from holdfast.activities.hooks.hook_runners import CommandRunner, FunctionRunner
from holdfast.activities.policy.lint import find_misspelt
from holdfast.activities.process.command import build_environment
from holdfast.config.schema import HookSettings, When
from holdfast.config.settings import Settings
from holdfast.config.toml_document import FileProblem, format_problems
from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_warning
from holdfast.util.globs import Glob
from holdfast.util.text import exception_text

ENTRY_POINT_GROUP = "holdfast.hooks"
"""The group of entry points by which a package brings hooks."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def load_hooks(settings: Settings) -> Hooks:
    """Load every hook of one worker; BadInput with all problems of all of them."""
    hooks: list[Hook] = []
    problems: list[str] = []
    for found in (*_load_configured(settings), *(_load_offered() if settings.hook_entry_points else ())):
        if isinstance(found, str):
            problems.append(found)
        elif any(found.name == other.name for other in hooks):
            problems.append(f"two hooks are called {found.name!r}: rename one, or set hook_entry_points = false")
        else:
            hooks.append(found)
    if problems:
        raise BadInput("\n".join(problems))
    return Hooks(hooks)


def _load_configured(settings: Settings) -> Iterator[Hook | str]:
    for place, given in enumerate(settings.hooks, start=1):
        try:
            yield _build_hook(given)
        except BadInput as error:
            message = f"the hook {given.name!r} {error}"
            line = settings.file_lines.get(f"hooks.{place}")
            yield format_problems(settings.file, [FileProblem(line, "", message)]) if settings.file else message


def _build_hook(given: HookSettings) -> Hook:
    folder, seconds = Path(given.folder), given.timeout_seconds
    if given.command:
        _check_program(given.command[0], folder, build_environment(given.environment).get("PATH"))
        command = CommandRunner(given.command, folder, seconds, given.environment)
        return Hook(given.name, given.when, command, given.tools, given.on_failure)
    reference = given.python or ""
    function = _load_function(lambda: _import_reference(reference, folder), reference, given.when)
    way = FunctionRunner(function, seconds, {"python": reference})
    return Hook(given.name, given.when, way, given.tools, given.on_failure)


def _check_program(program: str, folder: Path, path: str | None) -> None:
    found = folder / program if os.sep in program else shutil.which(program, path=path)
    if found is None or not os.path.isfile(found):
        raise BadInput(f"cannot be run: there is no program {program!r}")
    if not os.access(found, os.X_OK):
        raise BadInput(f"cannot be run: {program!r} is not executable (chmod +x)")


def _import_reference(reference: str, folder: Path) -> object:
    """The object that `module:name` names. A module that is not installed is looked for in `folder`."""
    if folder != Path() and str(folder) not in sys.path:
        sys.path.append(str(folder))
    return pkgutil.resolve_name(reference)


def _load_offered() -> Iterator[Hook | str]:
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)):
        try:
            yield _build_packaged(point)
        except BadInput as error:
            yield (
                f"the hook {clean_text(point.name, 100)!r} of the package {_find_package_name(point)} {error}; "
                "remove the package, or set hook_entry_points = false"
            )


def _build_packaged(point: EntryPoint) -> Hook:
    if not _NAME.fullmatch(point.name):
        raise BadInput("cannot be called so: letters, digits and _ . -, at most 100")
    function = _load_function(point.load, point.value)
    traits = find_mark(function)
    if traits is None:
        raise BadInput(f"cannot be used: {point.value} is not marked with @before_tool or @after_tool")
    version = point.dist.version if point.dist else ""
    identity = {"python": point.value, "package": _find_package_name(point), "version": version}
    way = FunctionRunner(function, traits.timeout_seconds, identity)
    return Hook(point.name, traits.when, way, traits.tools, traits.on_failure)


def _load_function(load: Callable[[], object], reference: str, when: When | None = None) -> Callable[[Any], Any]:
    """A function that takes a call; BadInput otherwise, whatever other people's code does when it is imported."""
    try:
        found = load()
    except (Exception, SystemExit) as error:
        words = " ".join(clean_text(exception_text(error)).split())
        raise BadInput(f"cannot be loaded: {type(error).__name__}: {words}") from error
    if not callable(found) or isinstance(found, type):
        raise BadInput(f"cannot be used: {reference} is no function")
    mark = find_mark(found)
    if when and mark and mark.when is not when:
        raise BadInput(f"cannot be used: {reference} is made for {mark.when.value!r}, not {when.value!r}")
    if not _can_take_call(found):
        raise BadInput(f"cannot be used: {reference} must take one argument, the call")
    return found


def _can_take_call(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # it does not tell
        return True
    return True


def _find_package_name(point: EntryPoint) -> str:
    return clean_text(point.dist.name if point.dist else point.name, 100)


def find_misspelt_tools(tools: Iterable[str], known: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each name in the `tools` of a hook that is close to that of a built-in tool, and not `known`."""
    return find_misspelt({name for pattern in tools for name in Glob(pattern).literals}.difference(known))


def check_hooks(settings: Settings) -> Iterator[Finding]:
    """Load every hook as a worker would; BadInput with all that is wrong with any of them."""
    hooks = load_hooks(settings)
    count = len(settings.hooks)
    yield report_ok(f"{count} of the settings, and all can be loaded" if count else "none in the settings")
    for hook in hooks.all_hooks:
        for why in find_misspelt_tools(hook.tools):
            yield report_warning(
                f"the hook {hook.name!r}: {why}", "correct its `tools`: it is asked about no other calls"
            )
