"""Why a Temporal server cannot be reached, in a sentence that says what to look at.

Temporal's core tells it as its own libraries do, nested and in their names. What is wrong with certificates and keys
is wrong with Temporal's own configuration, so the sentence names the variable. No sentence holds a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from temporalio.service import TLSConfig

from holdfast.content import shorten_text

TEXT_LIMIT = 300
_CERTIFICATE = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH"
_EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (
        r"InvalidCertificate\((UnknownIssuer|CaUsedAsEndEntity|BadSignature)",
        "its certificate is signed by nobody we trust: TEMPORAL_TLS_SERVER_CA_CERT_PATH names the file that says whom",
    ),
    (
        r"InvalidCertificate\(NotValidForName",
        "its certificate is for another name: TEMPORAL_TLS_SERVER_NAME says which one to expect",
    ),
    (r"InvalidCertificate\(Expired", "its certificate has expired, or this machine's clock is wrong"),
    (r"InvalidCertificate\(NotValidYet", "its certificate is not valid yet, or this machine's clock is wrong"),
    (r"InvalidCertificate", "its certificate is not one that we can check"),
    (r"InvalidContentType", "it does not speak TLS, and our configuration says that it does (TEMPORAL_TLS=false)"),
    (r"KeyMismatch", f"our key does not belong to our certificate: {_CERTIFICATE} name a pair"),
    (r"PrivateKeyParseError|CertificateParseError", f"our certificate or key cannot be read: see {_CERTIFICATE}"),
)
_HANG_UP_PATTERN = re.compile(
    r"close_notify|broken pipe|BrokenPipe|ConnectionReset|AlertReceived|stream closed|connection closed"
)
_REFUSED_PATTERN = re.compile(r"code: (Unauthenticated|PermissionDenied)")


def explain_failure(text: str, config: Mapping[str, Any]) -> str:
    """What a failed connection's error means, for a client with this configuration."""
    key = config.get("api_key")
    if key:
        text = text.replace(str(key), "…")
    tls = config.get("tls")
    for pattern, sentence in _EXPLANATIONS:
        if re.search(pattern, text):
            return sentence
    if _REFUSED_PATTERN.search(text):
        named = "is that in TEMPORAL_API_KEY right, and for this namespace?" if key else "TEMPORAL_API_KEY is not set"
        return f"it does not let us in ({_find_innermost(text)}): {named}"
    if _HANG_UP_PATTERN.search(text):
        return f"it hung up on us: {_explain_hang_up(tls)}"
    return _find_innermost(text)


def _explain_hang_up(tls: Any) -> str:
    if not tls:
        return "it may speak TLS, of which our configuration says nothing (TEMPORAL_TLS=true)"
    if isinstance(tls, TLSConfig) and tls.client_cert:
        return "it may not take the certificate in TEMPORAL_TLS_CLIENT_CERT_PATH (another authority, expired)"
    return f"it may want a certificate from us: {_CERTIFICATE} name one"


def _find_innermost(text: str) -> str:
    """What a nested error of Temporal's core says at its heart."""
    quoted = re.findall(r'(?:message|error): "([^"]+)"', text)
    return quoted[-1] if quoted else shorten_text(text, TEXT_LIMIT)
