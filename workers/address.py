"""Where the embedded server of a data folder is: a small file that it writes once it answers and removes at its end."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from holdfast.errors import ServerUnavailable
from holdfast.settings import Settings
from holdfast.whole_files import write_whole


@dataclass(frozen=True)
class ServerAddress:
    """What the file holds."""

    address: str
    pid: int


def read_server_file(settings: Settings) -> ServerAddress:
    """Where the embedded server is; ServerUnavailable when none runs."""
    hint = "start one with `holdfast up`, or set TEMPORAL_ADDRESS"
    try:
        found = ServerAddress(**json.loads(settings.server_file.read_text("utf-8")))
        os.kill(found.pid, 0)
    except FileNotFoundError:
        raise ServerUnavailable(f"no server runs on {settings.data}: {hint}") from None
    except ProcessLookupError:
        raise ServerUnavailable(f"the server on {settings.data} is gone: {hint}") from None
    except PermissionError:
        raise ServerUnavailable(f"the server on {settings.data} belongs to somebody else: {hint}") from None
    except (OSError, ValueError, TypeError) as error:
        raise ServerUnavailable(f"{settings.server_file} cannot be read ({error}): {hint}") from error
    return found


def write_server_file(settings: Settings, found: ServerAddress) -> None:
    """All of it or nothing: others read this file at any moment."""
    write_whole(settings.server_file, json.dumps(asdict(found)).encode())
