"""pydantic-ai on Temporal, by its own capability: a scripted model, and a tool that runs as an activity."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from serve import serve
from temporalio import workflow


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """As many calls as the prompt says, then text."""
    if len(messages) > 1:
        return ModelResponse(parts=[TextPart("done")])
    prompt = next(part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
    return ModelResponse(parts=[ToolCallPart("nothing", {}) for _ in range(int(str(prompt)))])


agent = Agent(FunctionModel(answer), name="bench", instructions="Help.", capabilities=[TemporalDurability()])


@agent.tool_plain
async def nothing() -> str:
    """A tool that does nothing."""
    return "done"


@workflow.defn(name="pydantic_ai")
class AgentTurn(PydanticAIWorkflow):
    """One run of an agent."""

    __pydantic_ai_agents__ = (agent,)

    @workflow.run
    async def run(self, count: int) -> str:
        """What the agent says in the end."""
        return str((await agent.run(str(count))).output)


async def main() -> None:
    """Serve."""
    await serve([AgentTurn], [], plugins=[PydanticAIPlugin()])
