"""The script of a supervisor: `python -I -S main.py FOLDER`, with the request on standard input.

A script of its own, with an empty package `holdfast` to import from, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if "holdfast" not in sys.modules:
        package = type(sys)("holdfast")
        package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
        sys.modules["holdfast"] = package
    from holdfast.activities.supervision.supervisor import main

    main(sys.argv[1])
