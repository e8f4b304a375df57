"""`holdfast policy …`: check files of rules, explain what they say of a call, test them, show them.

`policy diff` is in `policy_diff`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.workers.commands.codes import FAILED, OK, USAGE
from holdfast.workers.commands.options import Json, emit, example, harmless, note, run, say, settings_of

if TYPE_CHECKING:
    from holdfast.activities.policy.deciding import Entry, Policy
    from holdfast.activities.policy.loading import LoadedFile, PolicySource
    from holdfast.activities.policy.subjects import Subject
    from holdfast.modes import Mode
    from holdfast.outcomes import Offer
    from holdfast.workers.explaining import Explained

PASSED = 50
"""Rules that were passed over and are told in text; JSON has them all."""
policy = typer.Typer(
    help="Rules that allow, ask or deny: check, explain, test, show.",
    epilog=example("holdfast policy show", "holdfast policy check team.toml"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Files = Annotated[list[str] | None, typer.Argument(metavar="FILE…", help="Policy files; else the shipped one.")]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", metavar="[TIER=]FILE", help="Add a file: workspace=, user= (the default) or admin=."),
]
TierName = Annotated[str, typer.Option("--tier", metavar="TIER", help="workspace, user or admin.")]
ModeName = Annotated[str, typer.Option("--mode", metavar="MODE", help="default, auto_edit, plan or yolo.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    from holdfast.workers.commands import policy_diff

    policy_diff.register(policy)
    app.add_typer(policy, name="policy")


@policy.command(
    epilog=example("holdfast policy check team.toml", "holdfast policy check --tier workspace p.toml --json")
)
def check(files: Files = None, tier: TierName = "user", json: Json = False) -> None:
    """Check policy files: every problem with its line, rules that can never match, examples that do not behave."""
    from holdfast.activities.policy.loading import load_file, policy_of, shipped
    from holdfast.activities.policy.rules import Tier
    from holdfast.documents import read

    level = Tier(one_of("tier", tier, ("workspace", "user", "admin")))
    loaded = [load_file(read(path_of(file)), level) for file in files or ()] or [shipped()]
    if json:
        sound = not any(one.problems for one in loaded)
        emit({"ok": sound, "files": [_checked(one) for one in loaded]})
        raise typer.Exit(OK if sound else USAGE)
    policy_of(loaded)
    for one in loaded:
        say(f"{harmless(one.document.content.file)}: ok ({len(one.entries):,} rules, {one.tier.value})")
        for warning in one.warnings:
            note(f"{harmless(one.document.content.file)}, line {warning.line}: {warning.message}")


@policy.command(
    epilog=example(
        """holdfast policy explain --tool shell --args '{"command": "git push"}'""",
        """holdfast policy explain --tool write_file --args '{"path": "a", "content": ""}' --mode auto_edit""",
    )
)
def explain(
    tool: Annotated[str, typer.Option("--tool", metavar="NAME", help="The tool's name.")],
    args: Annotated[str, typer.Option("--args", metavar="JSON|-", help="Its arguments.")] = "{}",
    mode: ModeName = "default",
    server: Annotated[str | None, typer.Option("--server", metavar="NAME", help="The tool's server.")] = None,
    tainted: Annotated[bool, typer.Option("--tainted", help="The turn has taken in content from outside.")] = False,
    sends: Annotated[
        bool, typer.Option("--sends", help="The call sends data out, though it does not look so.")
    ] = False,
    policies: Policies = None,
    json: Json = False,
) -> None:
    """Explain what a worker with these settings would do with a call: which rule or kept answer decides and why, what
    would be asked, which rules were passed over.

    A call of a built-in tool is judged as a worker judges it. Another tool is not loaded: its path, url and command are
    not known here, and a tool of an MCP server is known by the settings, and by what its server said when it was last
    connected here. Hooks are named and not asked. Answers that stand in a turn or a session are not looked at.
    """
    from holdfast.calls import CallRequest
    from holdfast.workers.explaining import explain_call
    from holdfast.workers.reading import read_arguments

    wished = _mode(mode)
    request = CallRequest(tool=tool, arguments=read_arguments(args))
    rules = _policy(policies)
    found = run(explain_call(settings_of(), rules, request, wished, server=server, tainted=tainted, sends=sends))
    if found.remark and not json:
        note(harmless(found.remark))
    if json:
        emit(_explained(found))
        return
    if found.mode is not wished:
        note(f"The settings do not permit the mode {wished.value}: the call is judged in {found.mode.value}.")
    for line in _told(found):
        say(line)


@policy.command("test", epilog=example("holdfast policy test expectations.toml --policy team.toml"))
def try_out(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Expectations, in TOML or JSON.")],
    policies: Policies = None,
    json: Json = False,
) -> None:
    """Test the rules: does each call of a file get the decision it expects? The exit code is 1 when one does not."""
    from holdfast.activities.policy.expectations import try_all

    path = path_of(file)
    tried = try_all(path, _policy(policies))
    failed = [one for one in tried if not one.holds]
    if json:
        told = [{"line": one.line, "message": one.told} for one in failed]
        emit({"file": str(path), "ok": not failed, "expectations": len(tried), "failures": told})
    else:
        for one in failed:
            say(f"{harmless(path)}, line {one.line}: {one.told}")
        say(f"{len(tried) - len(failed):,} of {len(tried):,} expectations hold.")
    raise typer.Exit(FAILED if failed else OK)


@policy.command(epilog=example("holdfast policy show", "holdfast policy show --mode plan --policy team.toml"))
def show(
    policies: Policies = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Only those for this mode.")] = None,
    json: Json = False,
) -> None:
    """Show the rules in effect, in order of precedence: the first that is about a call decides."""
    from holdfast.workers import render

    rules = _policy(policies)
    chosen = _mode(mode) if mode is not None else None
    entries = [entry for entry in rules.entries if not chosen or chosen in (entry.rule.modes or (chosen,))]
    if json:
        emit({"digest": rules.digest, "rules": [_described(entry) for entry in entries]})
        return
    lines = [
        (entry.tier.value, entry.rule.priority, entry.rule.decision.value, entry.label, _summary(entry))
        for entry in entries
    ]
    render.console().print(render.table(("tier", "priority", "decision", "rule", "about"), lines))


def _policy(policies: Iterable[str] | None) -> Policy:
    """The rules that a worker started here would go by, with the files that were named beside."""
    from holdfast.activities.policy.loading import load_policy, sources_of

    return load_policy([*sources_of(settings_of()), *(source_of(text) for text in policies or ())])


def source_of(text: str) -> PolicySource:
    """`TIER=FILE`, or a file of the user's."""
    from holdfast.activities.policy.loading import PolicySource
    from holdfast.activities.policy.rules import Tier

    tier, mark, file = text.partition("=")
    if mark and tier in (Tier.WORKSPACE, Tier.USER, Tier.ADMIN):
        return PolicySource(path_of(file), Tier(tier))
    return PolicySource(path_of(text), Tier.USER)


def path_of(file: str) -> Path:
    """A file that was named on the command line."""
    from holdfast.trust import located

    if not file.strip():
        raise typer.BadParameter("the file's name is empty")
    return located(Path(file))


def _mode(text: str) -> Mode:
    from holdfast.modes import Mode

    return Mode(one_of("mode", text, tuple(mode.value for mode in Mode)))


def one_of(what: str, text: str, known: tuple[str, ...]) -> str:
    """A word of a few; BadParameter for another."""
    from holdfast.suggestions import did_you_mean

    if text not in known:
        hint = did_you_mean(text, known) or f"It is one of {', '.join(known)}."
        raise typer.BadParameter(f"no {what} is called {harmless(text)!r}. {hint}")
    return text


def _checked(one: LoadedFile) -> dict[str, Any]:
    return {
        "file": str(one.document.content.file),
        "tier": one.tier.value,
        "ok": not one.problems,
        "rules": len(one.entries),
        "problems": [asdict(problem) for problem in one.problems],
        "warnings": [asdict(problem) for problem in one.warnings],
    }


def _explained(found: Explained) -> dict[str, Any]:
    foreseen = found.foreseen
    told = {"decision": foreseen.decision, "by": foreseen.by, "message": foreseen.message, "hooks": list(found.hooks)}
    return {
        "foreseen": told,
        **found.rules.model_dump(mode="json"),
        "offers": [_offered(offer) for offer in foreseen.offers],
        "mode": found.mode.value,
        "subject": found.subject.model_dump(mode="json"),
    }


def _told(found: Explained) -> Iterable[str]:
    from holdfast.activities.policy.comparing import asking

    foreseen, ruling, rules = found.foreseen, found.rules.ruling, found.rules
    decided = ruling is not None and (foreseen.decision, foreseen.by) == (
        ruling.decision.value,
        f"{ruling.tier.value}: {ruling.rule}",
    )
    if ruling is None and foreseen.decision is None:
        yield "No rule speaks: the tool's own wish decides."
    elif ruling is None or not decided:
        yield f"{foreseen.decision}: {harmless(foreseen.by)}"
        yield from (f"  {harmless(foreseen.message)}" for _ in range(bool(foreseen.message)))
    if ruling is not None:
        where = "" if rules.where == ruling.rule else f", {rules.where}"
        by = f"{ruling.decision.value}: by rule {harmless(ruling.rule)!r} ({ruling.tier.value} tier{where})"
        yield by if decided else f"  the rules alone would say {by}"
        yield from (f"  reason: {harmless(ruling.reason)}" for _ in range(ruling.reason is not None))
        yield from (f"  the model reads: {harmless(ruling.message)}" for _ in range(ruling.message is not None))
    if foreseen.decision == "ask":
        yield f"  a person would be asked about: {_asked(found.subject)}"
        if ruling is not None:
            yield from (f"  asked: {harmless(', '.join(words))}" for words in [asking(ruling)] if words)
        for offer in foreseen.offers:
            yield harmless(f"  standing answer offered: {offer.covers} ({offer.outcome.value})")
    if found.hooks:
        named = ", ".join(found.hooks)
        yield harmless(f"Hooks that are asked before it, and not here: {named}. They may deny, ask or change it.")
    if rules.passed:
        yield "Passed over:"
    for one in rules.passed[:PASSED]:
        yield f"  {one.decision.value:<5} {one.tier.value:<9} {harmless(one.rule)}: {harmless(one.why)}"
    if len(rules.passed) > PASSED:
        yield f"  … {len(rules.passed) - PASSED:,} more (--json shows them)"


def _offered(offer: Offer) -> dict[str, Any]:
    scope = offer.scope.model_dump(mode="json", exclude_defaults=True, exclude={"digest"})
    return {"outcome": offer.outcome.value, "covers": offer.covers, "scope": scope or None}


def _asked(subject: Subject) -> str:
    named = [text for text in (subject.command, *subject.paths, *subject.urls) if text is not None]
    return harmless(" ".join([subject.tool, *named]))


def _described(entry: Entry) -> dict[str, Any]:
    rule = entry.rule.model_dump(mode="json", exclude_none=True, exclude={"match", "not_match"})
    return {"tier": entry.tier.value, "where": entry.where, **rule}


def _summary(entry: Entry) -> str:
    """Its conditions, and how it asks, in a line."""
    import json

    from holdfast.activities.policy.rules import ASKING

    told = {*entry.rule.conditions, *ASKING, "anything", "modes"}
    values = entry.rule.model_dump(mode="json", include=told, exclude_none=True)
    return harmless("  ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()))
