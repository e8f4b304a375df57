"""Asks a person the question of a running tool, by an update to its turn that waits for the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4
from weakref import WeakValueDictionary

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.execution.live_run import Asker
from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.turn.activity_io import ExecuteInput, Question
from holdfast.names import TurnUpdate
from holdfast.util.redaction import Redacted

RETRY_SECONDS = 1.0
GONE_STATUSES = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED)
"""Errors that a second try does not change: the turn has ended, or refuses the question."""
_LOGGER = logging.getLogger(__name__)


CheckAnswer = Callable[[QuestionAnswer, Confirmation], Awaitable[bool]]
"""Checks that a person gave this answer to that question, and to no question before it."""
CONCURRENT_QUESTIONS = 6
"""Questions of one turn and one worker that wait side by side: a turn takes ten updates at a time, decisions too."""


class QuestionSender:
    """Sends the questions of one worker's tools to their turns."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def build_asker(self, turn_id: str, input: ExecuteInput, check_answer: CheckAnswer) -> Asker:
        """The function by which the tool of this call asks. An answer that `check_answer` refuses is `cancel`."""

        async def ask(question: Confirmation) -> QuestionAnswer:
            body = Question(call=input.call_id, run=input.run, question=question)
            room = self._semaphores.setdefault(turn_id, asyncio.Semaphore(CONCURRENT_QUESTIONS))
            async with room:
                answer = await self._wait_for_answer(turn_id, body)
            if answer.action == "cancel" or await check_answer(answer, question):
                return answer
            _LOGGER.warning("Ignored the answer to call %s in %s: no person gave it", input.call_id, turn_id)
            return QuestionAnswer(action="cancel")

        return ask

    async def _wait_for_answer(self, turn_id: str, body: Question) -> QuestionAnswer:
        """Wait as long as it takes, through restarts of the server. The update's id makes it one question."""
        turn = self._client.get_workflow_handle(turn_id)
        name = f"ask-{body.call}-{uuid4().hex}"
        while True:
            try:
                answer: QuestionAnswer = await turn.execute_update(
                    TurnUpdate.ASK, body, id=name, result_type=QuestionAnswer
                )
                return answer
            except WorkflowUpdateFailedError as error:
                _LOGGER.warning(
                    "The turn refused a question of call %s in %s: %s", body.call, turn_id, Redacted(error.cause)
                )
                return QuestionAnswer(action="cancel")
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                if (task := asyncio.current_task()) and task.cancelling():
                    raise asyncio.CancelledError from None
            except RPCError as error:
                if error.status in GONE_STATUSES:
                    return QuestionAnswer(action="cancel")
                await asyncio.sleep(RETRY_SECONDS)
