"""Starts a subject: `python launch.py MODULE ADDRESS QUEUE`.

The subject is imported, not run as `__main__`: LangGraph's plugin cannot find the functions of that.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

if __name__ == "__main__":
    asyncio.run(importlib.import_module(sys.argv[1]).main())
