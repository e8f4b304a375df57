"""Files that somebody else's program runs, or goes by, without being told to: a table, with the reasons.

The line is drawn by who starts what. A file is here when code in it runs although nobody started it for that: because
a folder is opened or entered, a commit is made, a branch is pushed, or because it says which program a common tool
starts. Its change is shown before it is made.

Not here, since they are the work itself and run when somebody builds or tests it, which is asked about as a command:
Makefile, package.json, pyproject.toml, setup.py, conftest.py and other tests, Dockerfile, build.gradle, CMakeLists.txt.
A source file does what any of them could. Nor are texts that models read (AGENTS.md, CLAUDE.md, GEMINI.md,
.cursorrules): what they suggest is judged like every other call. Nor is `.env`, which holds values.
"""

from __future__ import annotations

import re

CODE_FILES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Holdfast goes by it", (".holdfast", "holdfast.toml", "granted.toml")),
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
"""Names of files and folders, wherever they are; `*` stays within a name. A folder stands for all that is in it."""


def _compile_names(names: tuple[str, ...]) -> re.Pattern[str]:
    # File systems may not tell upper case from lower, and git does not either when it looks for `.git`.
    ways = "|".join(re.escape(name.casefold()).replace(r"\*", "[^/]*") for name in names)
    return re.compile(f"/(?:{ways})/")


_PATTERNS = tuple((reason, _compile_names(names)) for reason, names in CODE_FILES)


def explain_code_file(path: str) -> str | None:
    """Why a file, by its path, runs or decides what does; None when nothing says so."""
    text = f"/{path.strip('/')}/".casefold()
    return next((reason for reason, pattern in _PATTERNS if pattern.search(text)), None)
