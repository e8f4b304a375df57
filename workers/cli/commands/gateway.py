"""`holdfast gateway`: the HTTP endpoint in a process of its own."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.workers.cli.options import Address, Data, Json, find_signer, format_example, resolve_settings, run_async
from holdfast.workers.terminal.output import print_json, print_note, print_text

if TYPE_CHECKING:
    from holdfast.client.signing_keys import Signer
    from holdfast.config.settings import Settings


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=format_example("holdfast gateway", "holdfast gateway --port 9000"))(gateway)


def gateway(
    address: Address = None,
    data: Data = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where to listen; else the settings, else 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Its port, 0 for any; else the settings, else 8234 or a free one.", min=0, max=65535),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request, and tracebacks.")] = False,
    json: Json = False,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
) -> None:
    """Serve the inbox over HTTP, to those who have a token.

    `holdfast up` starts one by itself. Prints a line beginning with "gateway ready" once it listens. It speaks plain
    HTTP: what is to be reached from elsewhere belongs behind something that speaks TLS. `holdfast tokens` makes tokens.
    """
    from holdfast.client.client import Holdfast
    from holdfast.workers.gateway.serve import open_listener, run_gateway
    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect_client
    from holdfast.workers.runtime.worker import leave_with_parent

    settings = resolve_settings(data)
    log_setup.configure_logging(settings.telemetry, verbose=verbose)
    parent = os.getppid() if embedded else None
    asked = settings.gateway
    chosen_host = _check_host(host) if host is not None else asked.host
    chosen_port = asked.port if port is None else port
    signer = _find_signer(settings)

    async def serve_http() -> None:
        client = await connect_client(settings, address=address, embedded=embedded)
        holdfast = Holdfast(client, task_queue=settings.task_queue, signer=signer)
        unasked = port is None and "port" not in asked.model_fields_set
        listener = open_listener(chosen_host, chosen_port, or_any=unasked)
        _print_notes(settings, chosen_host, signer, alone=not embedded)

        def print_ready(_: str) -> None:
            print_json({"ready": True, "url": listener.url, "pid": os.getpid()})

        tied = asyncio.create_task(leave_with_parent(parent)) if parent else None
        await run_gateway(holdfast, settings, listener, host=chosen_host, say=print_ready if json else print_text)
        if tied:
            tied.cancel()

    run_async(serve_http())


def _check_host(host: str) -> str:
    """A host as the settings file may name it."""
    from pydantic import ValidationError

    from holdfast.config.schema import GatewaySettings
    from holdfast.errors import BadInput

    try:
        return GatewaySettings(host=host).host
    except ValidationError:
        raise BadInput(f"--host {host[:80]!r} must be the name or the address of a host, without a port") from None


def _find_signer(settings: Settings) -> Signer | None:
    """Who signs in the name of the tokens: as for any command, if that key vouches for others."""
    signer = find_signer(settings)
    if signer is None or signer.vouches:
        return signer
    print_note(
        f"The gateway does not sign with the key of {signer.name!r}: it does not vouch for others "
        "(docs/how-to/approvers.md)."
    )
    return None


def _print_notes(settings: Settings, host: str, signer: Signer | None, *, alone: bool) -> None:
    """What whoever starts it should know; `holdfast up` tells of tokens itself."""
    from holdfast.errors import BadInput
    from holdfast.workers.gateway.auth import is_loopback
    from holdfast.workers.gateway.tokens import TokenFile

    if not is_loopback(host):
        print_note(
            f"It listens on {host}, in plain HTTP: tokens can be read on the way. Put something with TLS before it."
        )
    if signer is None and any(approver.key for approver in settings.approvers):
        print_note(
            "Only signed decisions count here, and the gateway has no key that vouches: what it sends is refused."
        )
    try:
        if not TokenFile(settings.tokens_file).read_all() and alone:
            print_note("Nobody has a token yet: make one with `holdfast tokens create NAME`.")
    except BadInput as error:
        print_note(f"It stays closed: {error}.")
