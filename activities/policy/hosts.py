"""The hosts of urls against those of a rule, each in the one form in which it travels.

`EXAMPLE.com.` is `example.com`, and `2130706433` is `127.0.0.1`: an address has many spellings and leads to one place.
"""

from __future__ import annotations

from holdfast.activities.policy.truths import Truth, to_truth

ANY_HOST, BELOW_PREFIX = "*", "*."


def find_host(url: str) -> str | None:
    """The host a url leads to; None when it cannot be told."""
    import httpx2  # few calls have a url

    try:
        return normalise_host(httpx2.URL(url.strip()).raw_host.decode("ascii"))
    except (httpx2.InvalidURL, ValueError, TypeError):
        return None


def normalise_host(host: str) -> str | None:
    """A name in lower case and ASCII, or an address; None for what is no host."""
    import httpx2

    from holdfast.activities.web.addresses import is_host, parse_literal

    try:
        text = host if ":" in host else httpx2.URL(scheme="http", host=host).raw_host.decode("ascii")
    except (httpx2.InvalidURL, ValueError):
        return None
    name = text.removesuffix(".").lower()
    if not name or not is_host(name):
        return None
    address = parse_literal(name)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address) if address else name


class HostPattern:
    """A host, `*.example.com` for those below it, or `*` for any. ValueError for anything else."""

    def __init__(self, pattern: str) -> None:
        self._any = pattern == ANY_HOST
        self._below = pattern.startswith(BELOW_PREFIX)
        name = None if self._any else normalise_host(pattern.removeprefix(BELOW_PREFIX))
        if name is None and not self._any:
            raise ValueError("must be a host, `*.example.com` for all below it, or `*`; without port or path")
        self._name = name or ""

    def matches(self, host: str | None) -> Truth:
        """Is this host meant? One that cannot be told perhaps is."""
        if host is None:
            return Truth.MAYBE
        if self._below:
            return to_truth(host.endswith(f".{self._name}"))
        return to_truth(self._any or host == self._name)
