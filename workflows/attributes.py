"""The names under which a turn is found: search attributes (plain text: never arguments) and the memo's key."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

STATE = SearchAttributeKey.for_keyword("HoldfastState")
TOOLS = SearchAttributeKey.for_keyword_list("HoldfastTools")
DEADLINE = SearchAttributeKey.for_datetime("HoldfastDeadline")

MEMO_KEY = "holdfast"
