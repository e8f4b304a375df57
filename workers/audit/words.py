"""Lengths of time as people read them in an audit."""

from __future__ import annotations


def seconds(value: float) -> str:
    """From milliseconds to weeks, two units at most."""
    if value < 60:
        return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"
    whole = round(value)
    for size, name, smaller, less in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {name}" + (f" {rest} {less}" if rest else "")
    return f"{value:.1f} s"
