"""Environment variables that no command inherits: Holdfast's own, and those with keys of model providers.

A worker needs the keys only to ask models. Errors never contain their values.
"""

from __future__ import annotations

OUR_PREFIXES = ("TEMPORAL_", "HOLDFAST_", "OTEL_EXPORTER_")
"""The prefixes of Holdfast's own variables: they may hold credentials of Temporal and of the trace collector."""
_PROVIDERS = """
ALIBABA ANTHROPIC AZURE_OPENAI AZURE_VOICELIVE CEREBRAS CO CRUSOE DASHSCOPE DEEPSEEK ELEVENLABS FIREWORKS GEMINI
GITHUB GITHUB_COPILOT GOOGLE GROQ META MISTRAL MOONSHOTAI NEBIUS OLLAMA OPENAI OPENROUTER OVHCLOUD PAIG
PYDANTIC_AI_GATEWAY SAMBANOVA SYSTEM_ONE TOGETHER TYPESAFE VERCEL_AI_GATEWAY VLLM VOYAGE XAI ZAI
"""
MODEL_KEYS = frozenset(
    {f"{name}_API_KEY" for name in _PROVIDERS.split()}
    | {
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AZURE_OPENAI_AD_TOKEN",
        "COPILOT_GITHUB_TOKEN",
        "GITHUB_COPILOT_API_TOKEN",
        "HEROKU_INFERENCE_KEY",
        "HF_TOKEN",
        "SNOWFLAKE_TOKEN",
        "VERCEL_OIDC_TOKEN",
    }
)
