"""Tests a server with the official MCP package and prints the results as one JSON object.

Usage: client.py auto|legacy stdio BELLJAR HOME, or client.py auto|legacy http URL TOKEN
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

mode, transport, target, home_or_token = sys.argv[1:5]


def server():
    if transport == "stdio":
        return StdioServerParameters(command=target, args=["mcp"], env={"BELLJAR_HOME": home_or_token})
    headers = {"Authorization": f"Bearer {home_or_token}"}
    http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(50))
    return streamable_http_client(target, http_client=http)


async def error_code(request):
    """Returns the error code that a request fails with, or None."""
    try:
        await request
    except MCPError as error:
        return error.error.code
    return None


async def run(client, code):
    return await client.call_tool("execute_code", {"code": code})


async def main():
    async with Client(server(), mode=mode) as client:
        tools = await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.list_prompts()
        answer = await run(client, "export default 6 * 7")
        failed = await run(client, "throw new Error('no')")
        together = await asyncio.gather(*(run(client, f"export default {n} * {n}") for n in range(4)))
        print(json.dumps({
            "version": client.protocol_version,
            "server": client.server_info.name,
            "tools": [tool.name for tool in tools.tools],
            "sum": answer.structured_content["result"],
            "failed": failed.is_error,
            "together": [one.structured_content["result"] for one in together],
            "unknown": await error_code(client.call_tool("nothing", {})),
            "missing": await error_code(client.read_resource("skill://nothing")),
        }))


asyncio.run(main())
