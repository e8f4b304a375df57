"""Of a lock file, what some lists of names name: pinned by version and hash, for `pip install --require-hashes`.

python deploy/image/pinned.py requirements.lock deploy/image/packages/base.txt … > pinned.txt
"""

import re
import sys
from pathlib import Path


def blocks(lock: str) -> dict[str, str]:
    """Each package's lines: its own, and its hashes below."""
    found = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(==(?:[^\n]*\\\n)*[^\n]*\n)", lock, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): name + rest for name, rest in found}


def main(lock: str, *lists: str) -> int:
    """Print them; 1 when the lock file knows one of them not."""
    known = blocks(Path(lock).read_text())
    names = sorted({name for file in lists for name in Path(file).read_text().split()})
    if unknown := [name for name in names if name not in known]:
        print(f"{lock} does not pin {', '.join(unknown)}", file=sys.stderr)
        return 1
    print("".join(known[name] for name in names), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
