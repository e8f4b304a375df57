"""Our server of the newer protocol as servers are that leave out what they should say: no result of it has a type.

python mcp_untyped.py FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MODERN = Path(__file__).with_name("mcp_modern.py")


def main() -> None:
    """Pass on every line that the server writes, without the types of complete results."""
    with subprocess.Popen([sys.executable, str(MODERN), sys.argv[1]], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        for line in server.stdout:
            message = json.loads(line)
            if message.get("result", {}).get("resultType") == "complete":
                del message["result"]["resultType"]
            print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
