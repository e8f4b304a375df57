"""Variables of the environment that no command inherits: our own, and those that hold the keys of models' providers.

A worker has the latter to ask models, and for nothing else: none of them is in an error.
"""

from __future__ import annotations

OUR_PREFIXES = ("TEMPORAL_", "HOLDFAST_", "OTEL_EXPORTER_")
"""How our own begin: they may hold our credentials, and those for our traces."""
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
