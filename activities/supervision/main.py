"""The supervisor as a program: `python -I -S main.py FOLDER`, the request on standard input.

A program of its own so that it starts in milliseconds. For the same reason it is given an empty `holdfast` to import
from: the real one loads what only applications need.
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
