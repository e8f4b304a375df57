"""Policy files: every mistake with its line, rules that can never match, examples, and whatever else may be in one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.policy.expectations import read_expectations, try_expectations
from holdfast.activities.policy.load_policy import (
    SHIPPED_FILE,
    YOLO_FILE,
    LoadedFile,
    PolicySource,
    build_policy,
    load_policy,
    load_shipped,
    read_policy_file,
)
from holdfast.activities.policy.rules import Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import BUILT_IN, CallKind, build_call_subject
from holdfast.config.toml_document import FileContent, FileProblem, format_problems
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.util.text import escape_controls
from tests.support.pages import find_page
from tests.support.policies import FILE, found, load, policy, rule, run, said

DOCS = find_page("policy")
DENY = '[[rule]]\ndecision = "deny"\n'


# What is wrong with it

WRONG: dict[str, tuple[str, int, str]] = {
    "broken": ("[[rule]]\ndecision = ", 2, "is not TOML: "),
    "another table": ("[[rules]]\n", 1, "`rules` is not a setting; did you mean `rule`?"),
    "no array": ("rule = 5", 1, "`rule` must be an array, not a whole number"),
    "a table": ("[rule]\ndecision = 'deny'", 1, "`rule` must be an array, not a table"),
    "an unknown key": (DENY + 'tol = "x"\ntool = "x"', 3, "`rule.1.tol` is not a setting; did you mean `tool`?"),
    "a tier": (DENY + 'anything = true\ntier = "admin"', 4, "`rule.1.tier` is not a setting"),
    "no decision": ('[[rule]]\ntool = "x"', 1, "`decision` is missing in `rule.1`"),
    "a decision": ('[[rule]]\ndecision = "alow"\ntool = "x"', 2, "must be 'deny', 'ask' or 'allow', not 'alow'"),
    "no condition": (DENY, 1, "a rule without conditions is about every call: say `anything = true`"),
    "only a mode": (DENY + 'modes = ["plan"]', 1, "say `anything = true` if that is meant"),
    "anything and more": (DENY + 'tool = "x"\nanything = true', 1, "`anything = true` goes with no condition"),
    "not anything": (DENY + "anything = false", 3, "can only be true: leave it out otherwise"),
    "not harmless": (DENY + "harmless = false", 3, "can only be true"),
    "a type": (DENY + "tool = 5", 3, "`rule.1.tool` must be text, or an array of texts"),
    "a type inside": (DENY + "tool = ['a',\n5]", 4, "`rule.1.tool.2` must be text, not a whole number"),
    "a flag": (DENY + "tainted = 1", 3, "`rule.1.tainted` must be true or false, not a whole number"),
    "a tool with a command": (DENY + 'tool = "shell(rm)"', 3, 'say `tool = "shell"` and `command = "rm"` instead'),
    "a tool of others": (DENY + 'tool = "Bash(rm:*)"', 3, "can never match: no tool can be called 'Bash(rm:)'"),
    "a tool with a space": (DENY + 'tool = ["read_file", "shell rm"]', 3, "no tool can be called 'shell rm'"),
    "an empty list": (DENY + "tool = []", 3, "`rule.1.tool` must not be empty: it would match nothing"),
    "an empty text": (DENY + "tool = ' '", 3, "is empty"),
    "no modes": (DENY + "anything = true\nmodes = []", 4, "`rule.1.modes` must not be empty"),
    "a mode": (
        DENY + "anything = true\nmodes = 'plann'",
        4,
        "must be 'default', 'auto_edit', 'plan' or 'yolo', not 'plann'",
    ),
    "no server": (DENY + "server = ''", 3, "say `false` for tools of no server"),
    "an effect": (DENY + "effect = ['reed']", 3, "must be 'read', 'idempotent' or 'once', not 'reed'"),
    "a kind": (DENY + "kind = 'x'", 3, "must be 'exec', 'edit', 'mcp', 'info' or 'question', not 'x'"),
    "a glob": (DENY + "tool = 'a[b'", 3, "is never closed"),
    "a brace": (DENY + "server = 'a{b'", 3, "is never closed"),
    "a path": (DENY + "path = 'a[b'", 3, "is never closed"),
    "a path with a dot": (DENY + "path = './a'", 3, "matches nothing: leave out `./`"),
    "a folder": (DENY + "path = 'a/'", 3, "end a folder in `/**`"),
    "a path that climbs": (DENY + "path = 'a/../b'", 3, "paths of calls are without `..`"),
    "a host": (DENY + "host = 'a b'", 3, "must be a host"),
    "a port": (DENY + "host = 'a:80'", 3, "without port or path"),
    "a url": (DENY + "host = 'http://a'", 3, "must be a host"),
    "a chain": (DENY + "command = 'a && b'", 3, "is about one command, and '&' would join or redirect several"),
    "a variable": (DENY + "command = 'a $X'", 3, "has a `$` that is not its last word"),
    "an open quote": (DENY + 'command = "a \'b"', 3, "has a quote or a backslash without its partner"),
    "no program": (DENY + "command = '$'", 3, "names no program"),
    "no arguments": (DENY + "arguments = {}", 3, "`rule.1.arguments` must not be empty"),
    "a date": (DENY + "arguments = { a = 1979-05-27 }", 3, "holds a date or time"),
    "no number": (DENY + "arguments = { a = [nan] }", 3, "holds a number that JSON cannot say"),
    "a pattern": (DENY + "patterns = { a = '(' }", 3, "'a' is not a regular expression that can be used"),
    "a pattern too many": (DENY + "patterns = { a = 'x)|(y' }", 3, "is not a regular expression"),
    "a comment": (DENY + "patterns = { a = '(?x)a #' }", 3, "is not a regular expression"),
    "look-around": (DENY + "patterns = { a = '(?=x)' }", 3, "leave out look-around"),
    "a pattern of a number": (DENY + "patterns = { a = 5 }", 3, "holds something that is no regular expression"),
    "a search in commands": (
        "[[rule]]\ndecision = 'allow'\npatterns = { command = 'ls.*' }",
        1,
        "by its words, not by its text",
    ),
    "a priority": (DENY + "anything = true\npriority = 1000", 4, "must be at most 999, not 1000"),
    "a low priority": (DENY + "anything = true\npriority = -1", 4, "must be at least 0, not -1"),
    "no priority": (DENY + "anything = true\npriority = true", 4, "must be a whole number"),
    "a name": (DENY + "anything = true\nname = ''", 4, "must be one line of 1 to 100 characters"),
    "a name that hides": (DENY + 'anything = true\nname = "a\\u202e"', 4, "all of them visible"),
    "a name taken": (DENY + "tool = 'a'\nname = 'n'\n" + DENY + "tool = 'b'\nname = 'n'", 8, "`name` is taken"),
    "a moment": (DENY + "anything = true\nexpires = 2030-01-01T00:00:00", 4, "must say its offset"),
    "no moment": (DENY + "anything = true\nexpires = 'soon'", 4, "must be a date, or a date and time"),
    "a time": (DENY + "anything = true\nexpires = 07:32:00", 4, "must be a date, or a date and time"),
    "a message": (
        "[[rule]]\ndecision = 'ask'\nanything = true\nmessage = 'x'",
        1,
        "`message` is what a model reads of a denial",
    ),
    "an example": (
        DENY + "tool = 'a'\nmatch = [{ tool = 'a' },\n{ tool = 'b' }]",
        5,
        "does not match this example: the tool is not `a`",
    ),
    "an example that should not": (
        DENY + "tool = 'a'\nnot_match = [\n{ tool = 'a' }]",
        5,
        "the rule does match this example",
    ),
    "an example that may": (DENY + "command = 'rm'\nmatch = [{ command = '$X' }]", 4, "may or may not match"),
    "an example of nothing": (DENY + "tainted = true\nmatch = [{ tainted = true }]", 4, "the example says no tool"),
    "an example's key": (DENY + "tool = 'a'\nmatch = [{ tols = 'a' }]", 4, "did you mean `tool`?"),
    # Rules that can never match
    "a command of an edit": (DENY + "kind = 'edit'\ncommand = 'ls'", 4, "can never match: only calls of kind `exec`"),
    "a command of a reader": (
        DENY + "tool = 'read_file'\nharmless = true",
        4,
        "can never match: `read_file` has no command",
    ),
    "what a model says": (DENY + "tool = 'shell'\narguments = { description = 'x' }", 4, "is never looked at"),
    "harmless and not": (DENY + "harmless = true\ndestructive = true", 4, "nothing is both"),
    "a path of a question": (DENY + "tool = 'ask_user'\npath = 'x'", 4, "a question names no path"),
    "a host of a reader": (DENY + "tool = ['read_file', 'edit']\nhost = 'x'", 4, "such a call has no url"),
    "after everything": (
        DENY + "anything = true\n" + DENY + "tool = 'x'",
        4,
        "can never match: rule number 1 comes first and is about every call",
    ),
    "under everything": (
        DENY + "tool = 'x'\npriority = 5\n" + DENY + "name = 'all'\nanything = true",
        1,
        "rule 'all' comes first",
    ),
    "behind a stricter": ("[[rule]]\ndecision = 'ask'\ntool = 'x'\n" + DENY + "anything = true", 1, "can never match"),
    "the same again": (DENY + "tool = 'x'\n[[rule]]\ndecision = 'ask'\ntool = 'x'", 4, "has the same conditions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_S29_a_mistake_is_told_with_its_line(name: str) -> None:
    text, line, words = WRONG[name]
    problems = found(text)
    assert words in " / ".join(problem.message for problem in problems)
    assert [problem.line for problem in problems] == [line]


FINE: dict[str, str] = {
    "nothing": "",
    "a rule": DENY + "anything = true",
    "other modes": DENY + "anything = true\nmodes = ['plan']\n" + DENY + "tool = 'x'",
    "a higher priority": DENY + "anything = true\n" + DENY + "tool = 'x'\npriority = 200",
    "after one that ends": DENY + "anything = true\nexpires = 2999-01-01\n" + DENY + "tool = 'x'",
    "what an allowance leaves": rule("anything = true") + rule("command = 'rm'\npriority = 5", "ask"),
    "plan, which an allowance leaves": rule("anything = true\npriority = 200") + rule("tool = 'x'\nmodes = 'plan'"),
    "the same, where all must be covered": rule("path = 'x/**'\npriority = 200") + rule("path = 'x/**'", "deny"),
    "a reader or a command": DENY + "tool = ['read_file', 'shell']\ncommand = 'ls'",
    "any tool": DENY + "tool = 'read*'\ncommand = 'ls'",
}


@pytest.mark.parametrize("name", FINE)
def test_what_may_yet_match_is_no_mistake(name: str) -> None:
    assert found(FINE[name]) == ()


def test_all_mistakes_are_told_at_once() -> None:
    text = "[[rule]]\ntol = 1\n" + DENY + "path = './x'\n" + DENY + "command = 'ls'\nkind = 'edit'\n" + DENY
    assert [problem.line for problem in found(text)] == [1, 2, 5, 8, 10]


def test_problems_of_all_files_are_told_together(tmp_path: Path) -> None:
    files = [tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "missing.toml"]
    files[0].write_text("x = 1")
    files[1].write_text(DENY)
    with pytest.raises(BadInput) as refusal:
        load_policy([PolicySource(file, Tier.USER) for file in files])
    told = str(refusal.value).splitlines()
    assert [line.split(":")[0].split(",")[0] for line in told] == [str(file) for file in files]


def test_a_workspace_file_may_only_tighten() -> None:
    [problem] = found(rule('tool = "x"', "allow"), Tier.WORKSPACE)
    assert (problem.line, "may only tighten" in problem.message) == (2, True)
    assert found(rule('tool = "x"', "ask"), Tier.WORKSPACE) == ()
    assert found(rule('tool = "x"', "allow"), Tier.ADMIN) == ()


def test_a_rule_that_has_expired_is_a_warning_and_says_nothing() -> None:
    loaded = load(DENY + "tool = 'x'\nexpires = 2020-01-31")
    assert loaded.problems == ()
    [warning] = loaded.warnings
    assert (warning.line, "has expired" in warning.message) == (1, True)
    assert said(build_policy([loaded]), build_call_subject("x", {})) is None


def test_a_date_counts_to_its_end() -> None:
    content = FileContent(FILE, (DENY + "tool = 'x'\nexpires = 2030-01-31").encode())
    assert read_policy_file(content, Tier.USER, datetime(2030, 1, 31, 23, 59, tzinfo=UTC)).warnings == ()
    assert read_policy_file(content, Tier.USER, datetime(2030, 2, 1, tzinfo=UTC)).warnings


def test_a_file_has_at_most_five_thousand_rules() -> None:
    many = "".join(f'{DENY}tool = "t{number}"\n' for number in range(5_001))
    assert found(many) == (FileProblem(1, "rule", "there are over 5,000 rules"),)
    assert found(many.rpartition("[[rule]]")[0]) == ()


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(DENY + "anything = true")
    file.chmod(0o666)
    with pytest.raises(BadInput, match="chmod go-w"):
        load_policy([PolicySource(file, Tier.ADMIN)])
    file.chmod(0o644)
    assert said(load_policy([PolicySource(file, Tier.ADMIN)]), run("ls")) == "deny"


# What comes with Holdfast

SHIPPED_TABLE: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "reading": ("read_file", {"path": "a"}, {}, "allow allow allow allow"),
    "searching": ("grep", {"pattern": "x"}, {}, "allow allow allow allow"),
    "reading elsewhere": ("read_file", {"path": "/etc/x"}, {}, "none none none allow"),
    "editing": ("edit", {"path": "a"}, {}, "ask allow deny allow"),
    "writing": ("write_file", {"path": "a"}, {}, "ask allow deny allow"),
    "editing elsewhere": ("edit", {"path": "../a"}, {}, "ask ask deny allow"),
    "a harmless command": ("shell", {"command": "ls"}, {}, "ask ask deny allow"),
    "a command": ("shell", {"command": "make"}, {}, "ask ask deny allow"),
    "a destructive command": ("shell", {"command": "rm -rf x"}, {}, "ask ask deny ask"),
    "what is not known": ("shell", {"command": "$X"}, {}, "ask ask deny ask"),
    "a device": ("shell", {"command": "> /dev/sda"}, {}, "ask ask deny ask"),
    "fetching": ("fetch", {"url": "https://a.example"}, {}, "ask ask ask allow"),
    "a question": ("ask_user", {"question": "?"}, {}, "ask ask ask ask"),
    "a server's tool": ("x", {}, {"server": "s"}, "ask ask deny allow"),
    "a server's read_file": ("read_file", {"path": "a"}, {"server": "s", "kind": CallKind.MCP}, "ask ask deny allow"),
    "a server's reader": ("x", {}, {"server": "s", "effect": Effect.READ}, "ask ask ask allow"),
    "a tool of one's own": ("x", {}, {}, "none none deny allow"),
    "a reader of one's own": ("x", {}, {"effect": Effect.READ}, "none none none allow"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED_TABLE)
def test_S27_the_shipped_rules_are_what_the_modes_say(name: str) -> None:
    tool, arguments, known, expected = SHIPPED_TABLE[name]
    subject = build_call_subject(tool, arguments, **known)
    decided = [said(build_policy([load_shipped()]), subject, mode) or "none" for mode in Mode]
    assert " ".join(decided) == expected


def test_the_shipped_file_is_sound_and_every_rule_named() -> None:
    assert (load_shipped().problems, load_shipped().warnings) == ((), ())
    assert all(entry.rule.name for entry in load_shipped().entries)
    assert SHIPPED_FILE.is_file()
    lifting = read_policy_file(FileContent(YOLO_FILE, YOLO_FILE.read_bytes()), Tier.DEFAULT)
    assert lifting.problems == ()


def test_the_built_in_tools_are_as_we_know_them(tmp_path: Path) -> None:
    from holdfast.activities.builtin import build_builtin_tools
    from holdfast.activities.process.output_store import OutputStore
    from holdfast.config.schema import ToolSettings

    tools = {tool.name: tool.effect for tool in build_builtin_tools(OutputStore(tmp_path), ToolSettings())}
    assert tools == {name: known.effect for name, known in BUILT_IN.items()}


# The docs


def blocks(kind: str) -> list[str]:
    return re.findall(rf"<!-- test: {kind} -->\n```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)


def test_the_examples_of_the_docs_are_sound_and_do_what_is_expected(tmp_path: Path) -> None:
    texts = blocks("user")
    assert len(texts) == 2
    loaded: list[LoadedFile] = [load(text) for text in texts]
    assert [format_problems(FILE, one.problems) for one in loaded] == ["", ""]
    file = tmp_path / "expectations.toml"
    [text] = blocks("expectations")
    file.write_text(text)
    tried = try_expectations(file, build_policy([load_shipped(), *loaded]))
    assert [one.summary for one in tried if not one.is_met] == []
    assert len(tried) == 5


def test_the_docs_tell_every_key() -> None:
    told = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", DOCS.read_text(), re.MULTILINE))))
    assert set(Rule.model_fields) <= told


# Expectations


def test_expectations_are_read_from_toml_and_json_with_their_lines(tmp_path: Path) -> None:
    toml = FileContent(
        Path("a.toml"), b'[[expect]]\ntool = "x"\ndecision = "none"\n[[expect]]\ntool = "y"\ndecision = "ask"'
    )
    json = b'{"expect": [\n{"tool": "x", "decision": "none"},\n\n{"tool": "y", "decision": "ask"}\n]}\n'
    for content in (toml, FileContent(Path("a.json"), json), FileContent(Path("a.json"), json[11:-2])):
        read = read_expectations(content)
        assert [(one.tool, one.decision.value) for _, one in read] == [("x", "none"), ("y", "ask")]
    assert [line for line, _ in read_expectations(toml)] == [1, 4]
    assert [line for line, _ in read_expectations(FileContent(Path("a.json"), json))] == [2, 4]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", ""), ("a.toml", "x = 1"), ("a.toml", "[[expect]]"), ("a.json", ""), ("a.json", "{}"),
        ("a.json", '{"expect": [}'), ("a.json", "[1]"), ("a.json", "[" * 100_000), ("a.json", '[{"tool": "x"}]'),
        ("a.json", '[{"tool": "x", "decision": "ask"}'), ("a.json", '[{"tool": "x", "decision": "ask"}] x'),
    ],
)  # fmt: skip
def test_expectations_that_cannot_be_read_are_bad_input(name: str, text: str) -> None:
    with pytest.raises(BadInput):
        read_expectations(FileContent(Path(name), text.encode()))


# Whatever is in it


def harmless(data: bytes) -> None:
    for tier in (Tier.USER, Tier.WORKSPACE):
        loaded = load(data, tier)
        for problem in loaded.problems:
            assert escape_controls(problem.message) == problem.message
            assert "\n" not in problem.message
            assert len(problem.message) < 1_500
        for entry in loaded.entries:
            assert said(build_policy([loaded]), run("ls -la; $X")) in ("allow", "ask", "deny", None)
            assert entry.rule.decision is not RuleEffect.ALLOW or tier is Tier.USER


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_rules_or_problems(data: bytes) -> None:
    harmless(data)


strange = st.text(alphabet="ab*?[]{}\\/.$'\"|;&<>() \x1b\u202e\n", max_size=8)
texts = (
    st.sampled_from(["shell", "allow", "deny", "ask", "plan", "read", "exec", "ls", "git **", "a.example"]) | strange
)
scalars = texts.map(lambda text: '"' + "".join(f"\\u{ord(one):04x}" for one in text) + '"') | st.sampled_from(
    ["1", "-1", "999", "nan", "true", "false", "1979-05-27", "2999-01-01T00:00:00Z", "[]", "{}"]
)
keys = st.sampled_from([*Rule.model_fields, "tol"])
tables = st.lists(st.tuples(keys, scalars).map(" = ".join), max_size=2).map(lambda made: f"{{ {', '.join(made)} }}")
values = scalars | tables | st.lists(scalars | tables, max_size=2).map(lambda made: f"[{', '.join(made)}]")


@st.composite
def tomls(draw: st.DrawFn) -> str:
    rules = []
    for _ in range(draw(st.integers(0, 3))):
        chosen = draw(st.dictionaries(keys, values, max_size=4))
        chosen = {"decision": draw(st.sampled_from(['"allow"', '"ask"', '"deny"'])), **chosen}
        rules.append("[[rule]]\n" + "\n".join(f"{key} = {value}" for key, value in chosen.items()))
    return "\n".join(rules)


@given(tomls())
def test_any_toml_is_rules_or_problems(text: str) -> None:
    harmless(text.encode())


def test_escape_codes_of_names_and_reasons_come_out_harmless() -> None:
    evil = "\\u001b]0;x\\u0007\\u202e"
    assert "visible" in found(DENY + f'anything = true\nname = "{evil}"')[0].message
    text = DENY + f'''tool = "shell"\ncommand = "ls '{evil}'"\nreason = "{evil}"\nmessage = "{evil}"'''
    explained = policy(text, rule("tool = 'shell'", "ask")).explain_ruling(run("ls"), Mode.DEFAULT)
    spoken = policy(rule(f'anything = true\nreason = "{evil}"\nmessage = "{evil}"', "deny")).find_ruling(
        run("ls"), Mode.PLAN
    )
    assert spoken
    for words in (*(one.why for one in explained.passed), spoken.reason or "", spoken.message or ""):
        assert escape_controls(words) == words
        assert "\x1b" not in words


@pytest.mark.parametrize(
    ("name", "meant"), [("shel", "shell"), ("Bash", "shell"), ("readfile", "read_file"), ("Write_File", "write_file")]
)
def test_S29_a_name_close_to_that_of_a_built_in_tool_is_warned_of(name: str, meant: str) -> None:
    loaded = load(f'[[rule]]\ndecision = "deny"\ntool = ["grep", "{name}"]')
    assert not loaded.problems
    [warning] = loaded.warnings
    assert (warning.line, f"do you mean {meant!r}?" in warning.message) == (1, True)


@pytest.mark.parametrize("name", ["deploy", "read*", "git__status"])
def test_names_that_are_close_to_no_built_in_tool_are_not_warned_of(name: str) -> None:
    assert load(f'[[rule]]\ndecision = "deny"\ntool = "{name}"').warnings == ()


def test_a_server_may_call_its_own_tools_anything() -> None:
    assert not load('[[rule]]\ndecision = "deny"\nserver = "s"\ntool = "run it (now)"').problems
