"""Lists and calls tools of an MCP server (JSON object on standard input: url, token, mode, calls). Prints the answers as JSON."""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url, token, mode, calls):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            tools = await client.list_tools()
            results = []
            for call in calls:
                result = await client.call_tool(call["name"], call.get("arguments", {}))
                results.append({"isError": bool(result.is_error), "json": json.loads(result.content[0].text)})
            return {
                "protocol": client.protocol_version,
                "tools": [tool.name for tool in tools.tools],
                "results": results,
            }


given = json.load(sys.stdin)
print(json.dumps(asyncio.run(main(given["url"], given["token"], given["mode"], given["calls"]))))
