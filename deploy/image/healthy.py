"""Is the process of this container well? Asked over HTTP, as HOLDFAST_PROBE says; for Docker's HEALTHCHECK.

A worker and a gateway answer on /ready. Exit code 0 or 1, and on standard output why.
"""

import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("HOLDFAST_PROBE") or "http://127.0.0.1:8235/ready"

try:
    # No proxy of the environment: this is about ourselves.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(URL, timeout=4) as answer:
        print(answer.read(200).decode("utf-8", "replace").strip())
except urllib.error.HTTPError as error:
    print(f"{URL} answers {error.code}: {error.read(200).decode('utf-8', 'replace').strip()}")
    sys.exit(1)
except (OSError, ValueError) as error:
    print(f"{URL} does not answer: {error}")
    sys.exit(1)
