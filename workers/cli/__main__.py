"""`python -m holdfast.workers.cli`."""

from __future__ import annotations

from holdfast.workers.cli import main

if __name__ == "__main__":
    main()
