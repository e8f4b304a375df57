"""What a person would see on a terminal of some width, or in a pipe."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType


def printed(item: RenderableType, width: int) -> list[str]:
    """Line by line, without colours."""
    file = StringIO()
    Console(file=file, width=width, color_system=None, soft_wrap=True).print(item)
    return file.getvalue().splitlines()
