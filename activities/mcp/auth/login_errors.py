"""Why there is no token, in words without secrets. What the `mcp` package says may hold whatever it was answered."""

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
_WRONG_ANSWER = "the answer from the browser is one to another question"


class Denied(NotAuthorized):
    """The authorization server has said no: asking again would not help."""


def build_denied(error: str, description: str | None = None) -> Denied:
    """What an authorization server said. It is cut by whoever tells it, once it is without secrets."""
    code = error if _ERROR_CODE.fullmatch(error) or " " in error else "an error without a name"
    words = f": {' '.join(strip_controls(description).split())}" if description else ""
    return Denied(f"{strip_controls(code)}{words}")


def check_token_response(response: httpx2.Response) -> None:
    """Nothing, when it is an answer with tokens; Denied or Unreachable when it says that there are none."""
    status = response.status_code
    if status in (200, 201):
        return
    if status >= 500 or status in (408, 425, 429):
        raise Unreachable(f"the authorization server answered with HTTP status {status}")
    said = _find_denial(response.content)
    if said and str(said).startswith(_TEMPORARY_ERRORS):
        raise Unreachable(f"the authorization server says: {said}")
    raise said or NotAuthorized(f"the authorization server answered with HTTP status {status}")


def explain_refusal(error: Exception, *, found: bool = True, wanted: bool | None = True) -> NotAuthorized:
    """Why it did not work. `found`: is the authorization server known; `wanted`: does the server want any?"""
    if isinstance(error, NotAuthorized):
        return error
    if isinstance(error, OAuthRegistrationError):
        return _explain_registration(str(error), found=found, wanted=wanted)
    if isinstance(error, OAuthTokenError):
        return NotAuthorized("what the authorization server answered is no token")
    if isinstance(error, OAuthFlowError):
        words = strip_controls(str(error))
        return NotAuthorized(_WRONG_ANSWER if words.startswith("State") else words)
    return NotAuthorized(f"what is said of the authorization makes no sense ({type(error).__name__})")


def _explain_registration(words: str, *, found: bool, wanted: bool | None) -> NotAuthorized:
    """A registration is also what the package tries where nobody has told it of any authorization."""
    if not found and not wanted:
        return NotAuthorized("the server wants no authorization: there is nothing to log in to")
    if not found:
        hint = "if it takes a token, give it in `headers`"
        return NotAuthorized(f"the server wants authorization, and does not say from whom: {hint}")
    failed = _REGISTRATION_STATUS.match(words)
    why = _find_denial(failed[2].strip().encode()) if failed else None
    status = f" (HTTP status {failed[1]})" if failed else ""
    hint = "a client that it knows goes into `oauth.client_id`"
    return NotAuthorized(f"the authorization server does not register us{status}{f': {why}' if why else ''}; {hint}")


def _find_denial(body: bytes) -> Denied | None:
    """The error in an answer, if there is one as OAuth has it."""
    try:
        value = from_json(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(error := value.get("error"), str):
        return None
    description = value.get("error_description")
    return build_denied(error, description if isinstance(description, str) else None)
