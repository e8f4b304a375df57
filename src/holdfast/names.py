"""The names under which a turn is found: search attributes (plain text: never arguments) and the memo's key."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

STATE_ATTRIBUTE = SearchAttributeKey.for_keyword("HoldfastState")
TOOLS_ATTRIBUTE = SearchAttributeKey.for_keyword_list("HoldfastTools")
DEADLINE_ATTRIBUTE = SearchAttributeKey.for_datetime("HoldfastDeadline")

MEMO_KEY = "holdfast"
