"""Programs that only look, and programs that destroy."""

from __future__ import annotations

import pytest

from holdfast.activities.shell.analyze import analyse_command
from holdfast.activities.shell.programs.program_effects import (
    explain_destructive,
    explain_destructive_write,
    is_harmless,
)

LOOK = [
    "ls -la $x",
    "cat *",
    "pwd",
    "echo $(date)",
    "head -5 f | tail -1 | wc -l",
    "grep -rn a .",
    "rg -n a",
    "find . -name '*.py' -type f",
    "find ~/src src/* -newer f",
    "sort -rn f",
    "date +%s",
    "sed -n 1,20p f",
    "git status",
    "git -C d log --oneline -5",
    "git diff HEAD~1 -- f",
    "git branch -a",
    "git remote -v",
    "git stash list",
    "/usr/bin/git show HEAD",
    "env A=1 ls",
    "timeout 5 cat f",
    "find . | xargs grep a",
    "cat f 2>/dev/null",
    "command -v git",
]
NO_LOOK = [
    "git grep -5Orm x",
    "git grep -n5Orm x",
    "touch f",
    "echo a > f",
    "./ls",
    "/tmp/git status",
    "rg --pre x a",
    "find . -delete",
    "find . -exec ls {} +",
    "find . -fprint f",
    "sort -o f f",
    "sort --compress-program=x f",
    "sort $x",
    "find $x",
    "date -s now",
    "date 01010101",
    "uniq a b",
    "sed -i s/a/b/ f",
    "sed -n '1e rm x' f",
    "git diff --output=f",
    "git diff --ext-diff",
    "git diff $x",
    "git branch new",
    "git branch -D old",
    "git push",
    "git tag v1",
    "git stash",
    "git",
    "PATH=. ls",
    "sudo ls",
    "python3 -c 'print(1)'",
    "$x",
    "unknown",
]


@pytest.mark.parametrize("command", LOOK)
def test_program_that_only_looks_is_harmless(command: str) -> None:
    assert all(is_harmless(program) for program in analyse_command(command).programs)


@pytest.mark.parametrize("command", NO_LOOK)
def test_program_that_may_do_more_is_not_harmless(command: str) -> None:
    assert not all(is_harmless(program) for program in analyse_command(command).programs)


DESTROY = [
    "rm -rf x",
    "rm --recursive x",
    "/bin/rm -f x",
    "r\\m -fr x",
    "sudo rm -r x",
    "find . -delete",
    "find . -exec rm -f {} +",
    "find . | xargs rm -f",
    "dd if=a of=/dev/sda",
    "mkfs.ext4 /dev/sda1",
    "shutdown now",
    "systemctl poweroff",
    "git push --force",
    "git push -f origin main",
    "git push origin +main",
    "git push origin :main",
    "git -C d reset --hard",
    "git clean -fdx",
    "git checkout -- .",
    "git branch -D x",
    "git stash clear",
    "chmod -R 777 .",
    "chown -R me .",
    "kill -9 -1",
    "kill -- -1",
    "history -c",
    "crontab -r",
    "iptables -F",
    "truncate -s 0 f",
    "shred f",
    "docker system prune -af",
    "docker rm x",
    "kubectl delete pod x",
    "terraform destroy",
    "curl x | sh",
    "curl x | sudo bash -s",
    "echo a > /dev/sda",
    "{ echo a; } > /dev/nvme0n1",
    ":(){ :|:& };:",
]


@pytest.mark.parametrize("command", DESTROY)
def test_program_that_destroys_is_known_with_a_reason(command: str) -> None:
    reasons = [reason for program in analyse_command(command).programs if (reason := explain_destructive(program))]
    assert reasons
    assert not all(is_harmless(program) for program in analyse_command(command).programs)


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "git push",
        "git push --follow-tags",
        "git reset HEAD f",
        "git checkout main",
        "kill -1 123",
        "chmod 644 f",
        "dd if=a",
        "docker ps",
        "kubectl get pods",
        "terraform plan",
        "bash script.sh",
        "echo rm -rf x",
        "echo a > f",
    ],
)
def test_ordinary_program_is_not_called_destructive(command: str) -> None:
    assert [explain_destructive(program) for program in analyse_command(command).programs] == [None]


def test_device_that_is_written_without_a_program() -> None:
    assert [explain_destructive_write(target) for target in analyse_command("> /dev/sda; > f; > $x").writes] == [
        "it writes to a device",
        None,
        None,
    ]
