"""A server of the newer protocol (2026-07-28) that changes its own tools, waits, and counts.

    python mcp_modern.py FOLDER [PORT]

On its standard streams, or at a port. Every effect is a line in FOLDER/effects.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import InputRequiredResult
from pydantic import BaseModel, Field

FOLDER = Path(sys.argv[1])
# A key that outlives the process: what it asked before it was started again is known to it.
server = MCPServer("modern", request_state_security=RequestStateSecurity(keys=["for tests only, and for nothing else"]))


def note(line: str) -> None:
    with open(FOLDER / "effects", "a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


@server.tool()
async def act(n: int) -> str:
    """Do something that must not be done twice."""
    note(f"act {n}")
    return f"did {n}"


@server.tool()
async def hang(ctx: Context) -> str:
    """Take for ever, unless told to stop."""
    note("hang")
    await ctx.report_progress(1, 2, "half way")
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        note("told to stop")
        raise
    return "late"


@server.tool()
async def grow(ctx: Context) -> dict[str, int]:
    """Offer one more tool."""

    async def grown() -> str:
        """Was not there before."""
        return "here"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return {"tools": 4}


class Guest(BaseModel):
    """Who comes."""

    name: str = Field(min_length=2)


class Seats(BaseModel):
    """How many, and where."""

    seats: int = Field(ge=1, le=8)
    place: Literal["window", "aisle"] = "window"


class Sure(BaseModel):
    """The last word."""

    sure: bool


def guest() -> Elicit[Guest]:
    return Elicit("Who comes?", Guest)


def seats() -> Elicit[Seats]:
    return Elicit("How many seats?", Seats)


def sure(guest: Annotated[Guest, Resolve(guest)], seats: Annotated[Seats, Resolve(seats)]) -> Elicit[Sure]:
    return Elicit(f"{seats.seats} for {guest.name}, at the {seats.place}?", Sure)


@server.tool()
async def book(
    day: str,
    guest: Annotated[Guest, Resolve(guest)],
    seats: Annotated[Seats, Resolve(seats)],
    sure: Annotated[ElicitationResult[Sure], Resolve(sure)],
) -> str:
    """Book a table: two questions at once, and one more that follows from them."""
    said = sure.data.sure if sure.action == "accept" else sure.action
    note(f"book {day} {guest.name} {seats.seats} {said}")
    return f"{day}: {seats.seats} for {guest.name} ({said})"


@server.tool()
async def want(ctx: Context, result: dict[str, Any]) -> str | InputRequiredResult:
    """Want anything at all, until it is given. For `$THEIRS` it says what is in that variable."""
    result = json.loads(json.dumps(result).replace("$THEIRS", os.environ.get("THEIRS", "")))
    if ctx.input_responses or ctx.request_state == "given":
        answers = {
            name: one.model_dump(mode="json", exclude_none=True) for name, one in (ctx.input_responses or {}).items()
        }
        note(f"want {answers}")
        return f"{answers} {ctx.request_state}"
    return InputRequiredResult.model_validate(result)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
