"""The transports to MCP servers: stdio and HTTP, bounded and counted. Nothing about single tools.

They are ours in place of those of the `mcp` package (2.3.0) for three reasons:

1. Its stdio client buffers a line of the server's output without a limit, and joins it anew for each chunk, so that one
long line takes the memory and the time of the worker. (The TypeScript SDK had the same:
https://github.com/modelcontextprotocol/typescript-sdk/pull/2245)
2. Its HTTP client replaces the status of a refusal by "Server returned an error response", so a request that was turned
away cannot be told from one that may have run: https://github.com/modelcontextprotocol/python-sdk/issues/2110
3. A POST that fails before its response reaches the caller as CancelledError, so a lost call looks like a stopped one,
and one that was never sent like one that was: https://github.com/modelcontextprotocol/python-sdk/issues/3560

A call that must not run twice needs 2 and 3 to be known. tests/unit/activities/mcp/test_sdk_transports.py has
a test for each reason, which fails when the installed package no longer gives it.

The decision: docs/decisions/0016-own-mcp-transports.md.
"""
