"""`holdfast policy …`: check policy files, explain the verdict on a call, test rules, show them.

`policy diff` is in `policy_diff`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from holdfast.activities.policy.compare import describe_asking
from holdfast.activities.policy.expectations import try_expectations
from holdfast.activities.policy.load_policy import (
    LoadedFile,
    build_policy,
    list_sources,
    load_policy,
    load_shipped,
    read_policy_file,
)
from holdfast.activities.policy.policy import Policy, PolicyRule
from holdfast.activities.policy.rules import ASKING_KEYS, Tier
from holdfast.activities.policy.subject import Subject
from holdfast.config.toml_document import read_content
from holdfast.domain.approvals.approval import Offer
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.modes import Mode
from holdfast.workers.cli.commands import policy_diff
from holdfast.workers.cli.open_client import run_async
from holdfast.workers.cli.options import Json, format_example
from holdfast.workers.cli.policy_options import Policies, TierName, parse_choice, parse_path, parse_source
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.exit_codes import FAILED, OK, USAGE
from holdfast.workers.lookup.explain_call import CallExplanation, explain_call
from holdfast.workers.terminal.input_files import read_arguments
from holdfast.workers.terminal.output import escape_line, print_json, print_note, print_table, print_text

PASSED_LIMIT = 50
"""Most rules that did not match and are printed as text; JSON has them all."""
policy = typer.Typer(
    help="Rules that allow, ask or deny: check, explain, test, show.",
    epilog=format_example("holdfast policy show", "holdfast policy check team.toml"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Files = Annotated[list[str] | None, typer.Argument(metavar="FILE…", help="Policy files; default: the shipped one.")]
ModeName = Annotated[str, typer.Option("--mode", metavar="MODE", help="default, auto_edit, plan or yolo.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands."""
    policy_diff.register_commands(policy)
    app.add_typer(policy, name="policy")


@policy.command(
    epilog=format_example("holdfast policy check team.toml", "holdfast policy check --tier workspace p.toml --json")
)
def check(files: Files = None, tier: TierName = "user", json: Json = False) -> None:
    """Check policy files: list every problem with its line, rules that can never match, and examples that fail."""
    level = Tier(parse_choice("tier", tier, ("workspace", "user", "admin")))
    loaded = [read_policy_file(read_content(parse_path(file)), level) for file in files or ()] or [load_shipped()]
    if json:
        sound = not any(one.problems for one in loaded)
        print_json({"ok": sound, "files": [_file_as_json(one) for one in loaded]})
        raise typer.Exit(OK if sound else USAGE)
    build_policy(loaded)
    for one in loaded:
        print_text(f"{escape_line(one.document.content.file)}: ok ({len(one.entries):,} rules, {one.tier.value})")
        for warning in one.warnings:
            print_note(f"{escape_line(one.document.content.file)}, line {warning.line}: {warning.message}")


@policy.command(
    epilog=format_example(
        """holdfast policy explain --tool shell --args '{"command": "git push"}'""",
        """holdfast policy explain --tool write_file --args '{"path": "a", "content": ""}' --mode auto_edit""",
    )
)
def explain(
    tool: Annotated[str, typer.Option("--tool", metavar="NAME", help="Name of the tool.")],
    args: Annotated[str, typer.Option("--args", metavar="JSON|-", help="Arguments of the call.")] = "{}",
    mode: ModeName = "default",
    server: Annotated[str | None, typer.Option("--server", metavar="NAME", help="Server of the tool.")] = None,
    tainted: Annotated[
        bool, typer.Option("--tainted", help="Assume that the turn has read content from outside.")
    ] = False,
    sends: Annotated[bool, typer.Option("--sends", help="Assume that the call sends data out.")] = False,
    policies: Policies = None,
    json: Json = False,
) -> None:
    """Explain what a worker with these settings would do with a call: which rule or saved grant decides and why, what
    would be asked, which rules did not match.

    A call of a built-in tool is judged as a worker judges it. Other tools are not loaded: their paths, urls and
    commands are not known here, and a tool of an MCP server is known from the settings and from its server's last
    connection here. Hooks are listed and not run. Grants of turns and sessions are not considered.
    """
    wished = _parse_mode(mode)
    request = CallRequest(tool=tool, arguments=read_arguments(args))
    rules = _load_policy(policies)
    found = run_async(
        explain_call(resolve_settings(), rules, request, wished, server=server, tainted=tainted, sends=sends)
    )
    if found.remark and not json:
        print_note(escape_line(found.remark))
    if json:
        print_json(_explanation_as_json(found))
        return
    if found.mode is not wished:
        print_note(f"The settings do not permit mode {wished.value}: the call is judged in mode {found.mode.value}.")
    for line in _describe_explanation(found):
        print_text(line)
    if passed := found.rules.passed:
        rows = [(one.decision.value, one.tier.value, one.rule, escape_line(one.why)) for one in passed[:PASSED_LIMIT]]
        print_table(("did not match", "tier", "rule", "because"), rows)
        if len(passed) > PASSED_LIMIT:
            print_text(f"… {len(passed) - PASSED_LIMIT:,} more (--json shows them)")


@policy.command("test", epilog=format_example("holdfast policy test expectations.toml --policy team.toml"))
def run_expectations(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Expectations, in TOML or JSON.")],
    policies: Policies = None,
    json: Json = False,
) -> None:
    """Test the rules against a file of calls with expected decisions. The exit code is 1 when one is not met."""
    path = parse_path(file)
    tried = try_expectations(path, _load_policy(policies))
    failed = [one for one in tried if not one.is_met]
    if json:
        failures = [{"line": one.line, "message": one.summary} for one in failed]
        print_json({"file": str(path), "ok": not failed, "expectations": len(tried), "failures": failures})
    else:
        for one in failed:
            print_text(f"{escape_line(path)}, line {one.line}: {one.summary}")
        print_text(f"{len(tried) - len(failed):,} of {len(tried):,} expectations are met.")
    raise typer.Exit(FAILED if failed else OK)


@policy.command(epilog=format_example("holdfast policy show", "holdfast policy show --mode plan --policy team.toml"))
def show(
    policies: Policies = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Only rules for this mode.")] = None,
    json: Json = False,
) -> None:
    """Show the rules in effect, in order of precedence: the first one that matches a call decides."""
    rules = _load_policy(policies)
    chosen = _parse_mode(mode) if mode is not None else None
    entries = [entry for entry in rules.entries if not chosen or chosen in (entry.rule.modes or (chosen,))]
    if json:
        print_json({"digest": rules.digest, "rules": [_entry_as_json(entry) for entry in entries]})
        return
    lines = [
        (entry.tier.value, entry.rule.priority, entry.rule.decision.value, entry.label, _format_summary(entry))
        for entry in entries
    ]
    print_table(("tier", "priority", "decision", "rule", "about"), lines)


def _load_policy(policies: Iterable[str] | None) -> Policy:
    """The rules that a worker started here would use, with the files of --policy."""
    return load_policy([*list_sources(resolve_settings()), *(parse_source(text) for text in policies or ())])


def _parse_mode(text: str) -> Mode:
    return Mode(parse_choice("mode", text, tuple(mode.value for mode in Mode)))


def _file_as_json(one: LoadedFile) -> dict[str, Any]:
    return {
        "file": str(one.document.content.file),
        "tier": one.tier.value,
        "ok": not one.problems,
        "rules": len(one.entries),
        "problems": [asdict(problem) for problem in one.problems],
        "warnings": [asdict(problem) for problem in one.warnings],
    }


def _explanation_as_json(found: CallExplanation) -> dict[str, Any]:
    foreseen = found.foreseen
    verdict = {"decision": foreseen.decision, "by": foreseen.by, "message": foreseen.message}
    return {
        "foreseen": {**verdict, "hooks": list(found.hooks)},
        **found.rules.model_dump(mode="json"),
        "offers": [_offer_as_json(offer) for offer in foreseen.offers],
        "mode": found.mode.value,
        "subject": found.subject.model_dump(mode="json"),
    }


def _describe_explanation(found: CallExplanation) -> Iterable[str]:
    foreseen, ruling, rules = found.foreseen, found.rules.ruling, found.rules
    decided = ruling is not None and (foreseen.decision, foreseen.by) == (
        ruling.decision.value,
        f"{ruling.tier.value}: {ruling.rule}",
    )
    if ruling is None and foreseen.decision is None:
        yield "No rule matches: the tool itself decides."
    elif ruling is None or not decided:
        yield f"{foreseen.decision}: {escape_line(foreseen.by)}"
        yield from (f"  {escape_line(foreseen.message)}" for _ in range(bool(foreseen.message)))
    if ruling is not None:
        where = "" if rules.where == ruling.rule else f", {rules.where}"
        by = f"{ruling.decision.value}: by rule {escape_line(ruling.rule)!r} ({ruling.tier.value} tier{where})"
        yield by if decided else f"  by the rules alone: {by}"
        yield from (f"  reason: {escape_line(ruling.reason)}" for _ in range(ruling.reason is not None))
        yield from (f"  the model reads: {escape_line(ruling.message)}" for _ in range(ruling.message is not None))
    if foreseen.decision == "ask":
        yield f"  a person is asked about: {_format_subject(found.subject)}"
        if ruling is not None:
            yield from (f"  asked: {escape_line(', '.join(words))}" for words in [describe_asking(ruling)] if words)
        for offer in foreseen.offers:
            yield escape_line(f"  grant offered: {offer.covers} ({offer.outcome.value})")
    if found.hooks:
        named = ", ".join(found.hooks)
        yield escape_line(f"Hooks that a worker runs first, and this command does not: {named}.")


def _offer_as_json(offer: Offer) -> dict[str, Any]:
    scope = offer.scope.model_dump(mode="json", exclude_defaults=True, exclude={"digest"})
    return {"outcome": offer.outcome.value, "covers": offer.covers, "scope": scope or None}


def _format_subject(subject: Subject) -> str:
    named = [text for text in (subject.command, *subject.paths, *subject.urls) if text is not None]
    return escape_line(" ".join([subject.tool, *named]))


def _entry_as_json(entry: PolicyRule) -> dict[str, Any]:
    rule = entry.rule.model_dump(mode="json", exclude_none=True, exclude={"match", "not_match"})
    return {"tier": entry.tier.value, "where": entry.location, **rule}


def _format_summary(entry: PolicyRule) -> str:
    """The conditions of a rule and how it asks, in one line."""
    keys = {*entry.rule.condition_keys, *ASKING_KEYS, "anything", "modes"}
    values = entry.rule.model_dump(mode="json", include=keys, exclude_none=True)
    return escape_line("  ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()))
