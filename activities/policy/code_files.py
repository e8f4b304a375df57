"""Files that programs run or obey by their names alone, with the reason for each (S29)."""

from __future__ import annotations

import re

# A file is listed when code in it runs although nobody started that code: because a folder is opened or entered, a
# commit is made, a branch is pushed, or because it names a program that a common tool starts.
#
# Not listed are files of the project itself that run when somebody builds or tests it, which is a command: Makefile,
# package.json, pyproject.toml, setup.py, conftest.py, Dockerfile, build.gradle, CMakeLists.txt. Nor texts for models
# (AGENTS.md, CLAUDE.md, .cursorrules): what they suggest is judged like every call. Nor `.env`, which has values.
CODE_FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Holdfast reads its settings, rules or grants from it", (".holdfast", "holdfast.toml", "granted.toml")),
    (
        "git runs hooks, filters, drivers and other programs by it",
        (".git", ".gitattributes", ".gitmodules", ".gitconfig", ".config/git", ".lfsconfig"),
    ),
    ("a version control system runs hooks and other programs by it", (".hg", ".hgrc", ".jj")),
    (
        "it runs at every commit",
        (".husky", ".githooks", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook*.yml", ".lefthook*.yml",
         "lefthook*.toml", ".lefthook*.toml", ".lintstagedrc*", "lint-staged.config.*", ".overcommit.yml"),
    ),
    ("it runs when its folder is entered", (".envrc", "mise*.toml", ".mise*.toml", ".mise",
                                              ".config/mise", ".autoenv.zsh")),
    (
        "an editor runs it, or the programs that it names, when the folder is opened",
        (".vscode", "*.code-workspace", ".idea", ".fleet", ".zed", ".devcontainer", ".devcontainer.json", ".exrc",
         ".nvimrc", ".nvim.lua", ".lvimrc", ".vimrc", ".dir-locals.el", ".dir-locals-2.el", ".luarc.json", ".vim",
         ".config/nvim", ".emacs", ".emacs.d"),
    ),
    (
        "it runs, with the project's secrets, when a branch is pushed",
        (".github", ".forgejo", ".gitea", ".gitlab", ".gitlab-ci.yml", ".circleci", ".travis.yml", ".cirrus.yml",
         ".drone.yml", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml", ".buildkite", ".teamcity", ".build.yml",
         ".appveyor.yml", "appveyor.yml", "azure-pipelines.yml", ".azure-pipelines", "bitbucket-pipelines.yml",
         "cloudbuild.yaml", "Jenkinsfile"),
    ),
    (
        "a package manager or a build tool takes from it which programs it starts",
        (".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", ".pnpmfile.cjs", ".pnp.cjs",
         ".pnp.loader.mjs", "bunfig.toml", ".cargo/config", ".cargo/config.toml", ".bazelrc", ".bazeliskrc",
         ".bazelversion", ".mvn", "gradle/wrapper", "rust-toolchain",
         "rust-toolchain.toml", ".latexmkrc", "latexmkrc", ".bundle/config", ".gemrc",
         ".terraformrc", ".sbtopts", ".jvmopts"),
    ),
    (
        "an interpreter or a debugger runs it whenever it starts",
        ("sitecustomize.py", "usercustomize.py", "*.pth", ".Renviron", ".octaverc",
         ".pdbrc", ".gdbinit", ".lldbinit", ".ipython", ".Rprofile",
         ".irbrc", ".pryrc", ".ghci", ".ocamlinit"),
    ),
    (
        "an assistant takes from it which programs run, and what it may do",
        (".claude", ".gemini", ".codex", ".cursor", ".windsurf", ".continue", ".roo", ".kiro", ".amazonq",
         ".aider.conf.yml", ".mcp.json"),
    ),
    (
        "a login or a connection runs it",
        (".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
         ".zprofile", ".zlogin", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".cshrc", ".tcshrc",
         ".login", ".kshrc", ".mkshrc", ".zlogout", ".bash_completion", ".pam_environment", ".tmux.conf", ".screenrc",
         ".sqliterc", ".psqlrc", ".ssh", ".gnupg", ".netrc",
         ".aws/config", ".kube/config", ".docker/config.json", ".config/fish", ".config/autostart", ".config/systemd",
         ".local/bin", "Library/LaunchAgents"),
    ),
)  # fmt: skip
"""Reasons with names of files and folders anywhere; `*` stays within a name. A folder includes everything in it."""


def _compile_names(names: tuple[str, ...]) -> re.Pattern[str]:
    # Without case: some file systems ignore it, and so does git when it looks for `.git`.
    ways = "|".join(re.escape(name.casefold()).replace(r"\*", "[^/]*") for name in names)
    return re.compile(f"/(?:{ways})/")


_PATTERNS = tuple((reason, _compile_names(names)) for reason, names in CODE_FILES)


def explain_code_file(path: str) -> str | None:
    """Explain why a file with this path decides what runs; None when its name is not listed."""
    text = f"/{path.strip('/')}/".casefold()
    return next((reason for reason, pattern in _PATTERNS if pattern.search(text)), None)
