"""`holdfast gateway`: the HTTP endpoint in a process of its own."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer
from pydantic import ValidationError

from holdfast.client.client import Holdfast
from holdfast.client.signing_keys import Signer
from holdfast.config.schema import GatewaySettings
from holdfast.config.settings import Settings
from holdfast.errors import BadInput
from holdfast.workers.cli.open_client import find_signer, run_async
from holdfast.workers.cli.options import Address, Data, Json, format_example
from holdfast.workers.cli.resolve_settings import resolve_settings
from holdfast.workers.gateway.auth import is_loopback
from holdfast.workers.gateway.serve import open_listener, run_gateway
from holdfast.workers.gateway.tokens import TokenFile
from holdfast.workers.runtime import log_setup
from holdfast.workers.runtime.connect import connect_client
from holdfast.workers.runtime.worker import leave_with_parent
from holdfast.workers.terminal.output import print_json, print_note, print_text


def register_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=format_example("holdfast gateway", "holdfast gateway --port 9000"))(gateway)


def gateway(
    address: Address = None,
    data: Data = None,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Host to listen on; default: the settings, else 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port, 0 for any; default: the settings, else 8234 or a free one.", min=0, max=65535),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every request, and tracebacks.")] = False,
    json: Json = False,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
) -> None:
    """Serve the inbox over HTTP, to those who have a token.

    `holdfast up` starts it too. Prints a line that begins with "gateway ready" once it listens. It serves plain HTTP:
    put a proxy with TLS before it if other machines are to reach it. `holdfast tokens` creates tokens.
    """
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
    """The host if it is valid; BadInput otherwise."""
    try:
        return GatewaySettings(host=host).host
    except ValidationError:
        raise BadInput(f"--host {host[:80]!r} must be the name or the address of a host, without a port") from None


def _find_signer(settings: Settings) -> Signer | None:
    """The key that signs the decisions of tokens: the one of any command, if that key vouches for others."""
    signer = find_signer(settings)
    if signer is None or signer.vouches:
        return signer
    print_note(
        f"The gateway does not sign: the key of {signer.name!r} may not vouch for others (docs/how-to/approvers.md)."
    )
    return None


def _print_notes(settings: Settings, host: str, signer: Signer | None, *, alone: bool) -> None:
    """Print what whoever starts it should know; `holdfast up` prints the note about tokens itself."""
    if not is_loopback(host):
        print_note(
            f"It listens on {host} in plain HTTP, so tokens can be read on the network: put a proxy with TLS before it."
        )
    if signer is None and any(approver.key for approver in settings.approvers):
        print_note(
            "Decisions must be signed here, and the gateway has no key that may vouch: its decisions are refused."
        )
    try:
        if not TokenFile(settings.tokens_file).read_all() and alone:
            print_note("There is no token yet: create one with `holdfast tokens create NAME`.")
    except BadInput as error:
        print_note(f"No request is accepted: {error}.")
