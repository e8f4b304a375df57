"""Holdfast: a durable tool-call engine for AI assistants, on Temporal.

The public names stand in `__init__.pyi`. Each is loaded when it is first used: who starts a turn imports no worker.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
