"""Explains why there is no token, without secrets. Messages of the `mcp` package may repeat whatever a server
answered.
"""

from __future__ import annotations

import re

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from pydantic_core import from_json

from holdfast.activities.mcp.auth.endpoints import Unreachable
from holdfast.activities.mcp.auth.login_store import NotAuthorized
from holdfast.util.text import strip_controls

_ERROR_CODE = re.compile(r"[\x21-\x7e]{1,60}")
_REGISTRATION_STATUS = re.compile(r"Registration failed: (\d{3})(.*)", re.DOTALL)
_TEMPORARY_ERRORS = ("server_error", "temporarily_unavailable")
_WRONG_ANSWER = "the browser returned the answer to another login"


class Denied(NotAuthorized):
    """The authorization server has refused: asking again would not help."""


def build_denied(error: str, description: str | None = None) -> Denied:
    """Build the refusal of an authorization server. The caller removes secrets, then cuts it."""
    code = error if _ERROR_CODE.fullmatch(error) or " " in error else "an error without a name"
    words = f": {' '.join(strip_controls(description).split())}" if description else ""
    return Denied(f"{strip_controls(code)}{words}")


def check_token_response(response: httpx2.Response) -> None:
    """Check the answer to a token request. Denied or Unreachable when it holds no tokens."""
    status = response.status_code
    if status in (200, 201):
        return
    if status >= 500 or status in (408, 425, 429):
        raise Unreachable(f"the authorization server answered with HTTP status {status}")
    denial = _find_denial(response.content)
    if denial and str(denial).startswith(_TEMPORARY_ERRORS):
        raise Unreachable(f"the authorization server says: {denial}")
    raise denial or NotAuthorized(f"the authorization server answered with HTTP status {status}")


def explain_refusal(error: Exception, *, found: bool = True, wanted: bool | None = True) -> NotAuthorized:
    """Explain why a login failed.

    `found`: the authorization server is known; `wanted`: the server requires authorization.
    """
    if isinstance(error, NotAuthorized):
        return error
    if isinstance(error, OAuthRegistrationError):
        return _explain_registration(str(error), found=found, wanted=wanted)
    if isinstance(error, OAuthTokenError):
        return NotAuthorized("the authorization server's answer is not a token")
    if isinstance(error, OAuthFlowError):
        words = strip_controls(str(error))
        return NotAuthorized(_WRONG_ANSWER if words.startswith("State") else words)
    return NotAuthorized(f"the authorization server's metadata is invalid ({type(error).__name__})")


def _explain_registration(words: str, *, found: bool, wanted: bool | None) -> NotAuthorized:
    """The package also tries to register where the server names no authorization server."""
    if not found and not wanted:
        return NotAuthorized("the server requires no authorization: there is nothing to log in to")
    if not found:
        hint = "if it accepts a token, put it into `headers`"
        return NotAuthorized(f"the server requires authorization and does not name an authorization server: {hint}")
    failed = _REGISTRATION_STATUS.match(words)
    why = _find_denial(failed[2].strip().encode()) if failed else None
    status = f" (HTTP status {failed[1]})" if failed else ""
    hint = "put the id of a registered client into `oauth.client_id`"
    return NotAuthorized(f"the authorization server does not register us{status}{f': {why}' if why else ''}; {hint}")


def _find_denial(body: bytes) -> Denied | None:
    """The OAuth error in an answer, if there is one."""
    try:
        value = from_json(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(error := value.get("error"), str):
        return None
    description = value.get("error_description")
    return build_denied(error, description if isinstance(description, str) else None)
