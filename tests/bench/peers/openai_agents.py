"""The OpenAI Agents SDK on Temporal, by its official plugin: a scripted model, and a tool that is an activity."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, set_tracing_disabled
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall
from serve import serve
from temporalio import activity, workflow
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider
from temporalio.openai_agents.workflow import activity_as_tool

LIMIT = timedelta(seconds=60)


@activity.defn
async def nothing() -> str:
    """A tool that does nothing."""
    return "done"


class Scripted(Model):
    """Asks for as many calls as the prompt says, then answers."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        """Calls in the first step, text in the second."""
        items = [] if isinstance(input, str) else input
        if any(item.get("type") == "function_call_output" for item in items):
            return ResponseBuilders.output_message("done")
        count = int(input if isinstance(input, str) else items[0]["content"])
        calls = [
            ResponseFunctionToolCall(
                arguments="{}", call_id=f"call-{n}", name="nothing", type="function_call", id=f"id-{n}"
            )
            for n in range(count)
        ]
        return ModelResponse(output=list(calls), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Not asked for here."""
        raise NotImplementedError


@workflow.defn(name="openai_agents")
class AgentTurn:
    """One run of an agent."""

    @workflow.run
    async def run(self, count: int) -> str:
        """What the agent says in the end."""
        tool = activity_as_tool(nothing, start_to_close_timeout=LIMIT)
        agent = Agent(name="bench", instructions="Help.", tools=[tool])
        result = await Runner.run(agent, input=str(count))
        return str(result.final_output)


async def main() -> None:
    """Serve."""
    set_tracing_disabled(True)
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=LIMIT),
        model_provider=TestModelProvider(Scripted()),
        add_temporal_spans=False,
    )
    await serve([AgentTurn], [nothing], plugins=[plugin])
