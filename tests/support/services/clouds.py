"""S3 and Google Cloud Storage on this machine: real servers, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
BUCKET = "payloads"


class Cloud:
    """A server that can be stopped and started again at the same port."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._words = [word.replace("PORT", str(self.port)) for word in words]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Until it answers."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HOLDFAST_"))}
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            cwd=self._folder,
            env=kept,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(60):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    await writer.wait_closed()
                    return
                assert self._process.returncode is None, "it ended"
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """SIGKILL."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def s3_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    """moto, with a bucket; credentials are in the environment."""
    for name, value in {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "s3-secret-canary"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    cloud = Cloud(folder, str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", "PORT")
    await cloud.start()
    try:
        await make_s3_bucket(cloud)
        yield cloud
    finally:
        await cloud.stop()


async def make_s3_bucket(cloud: Cloud, name: str = BUCKET) -> None:
    """A bucket of moto's, which it keeps in memory."""
    import aioboto3

    session = aioboto3.Session()
    async with session.client("s3", endpoint_url=cloud.url, region_name="us-east-1") as client:
        await client.create_bucket(Bucket=name)


@asynccontextmanager
async def gcs_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cloud]:
    """The emulator, with a bucket, kept on disk."""
    words = (str(BIN / "gcp-storage-emulator"), "-d", str(folder / "gcs"))
    cloud = Cloud(folder, *words, "start", "--host", "127.0.0.1", "--port", "PORT", "-q", "--default-bucket", BUCKET)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.url)
    await cloud.start()
    try:
        yield cloud
    finally:
        await cloud.stop()
