import * as z from "zod";
import { ProtectedResource } from "../shared/platform/http/api.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { Problem } from "../shared/platform/http/problem.ts";
import { content, ok } from "../shared/platform/http/reply.ts";
import { PRODUCT } from "../shared/platform/product.ts";
import { builtVersion } from "./built-version.ts";
import { endpoint } from "./declare.ts";
import type { Tool } from "./mcp/tools.ts";
import type { Services } from "./services.ts";

// The MCP server for assistants (docs/mcp.md), and the two open documents that lead programs to it.

const tag = "Assistants";

const protectedResource = endpoint({
  name: "getProtectedResource",
  method: "GET",
  // The path of the resource follows (RFC 9728, 3.1).
  route: ".well-known/oauth-protected-resource/mcp",
  summary: "Get the metadata of the MCP server",
  description:
    "Metadata of a protected resource (RFC 9728). It names no authorization server, because that would name the tenant. So clients can't start a sign-in by themselves: configure them with an API token or an Entra token. Returns 404 if the setting PUBLIC_BASE_URL is not set.",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: ProtectedResource },
  problems: ["notFound"],
  handle: async ({ origin }) => {
    if (origin === undefined)
      throw new Problem("notFound", "The service does not know its own address: PUBLIC_BASE_URL is not set.");
    return ok({
      resource: `${origin}/mcp`,
      resource_name: PRODUCT,
      bearer_methods_supported: ["header"],
      resource_documentation: `${origin}/llms.txt`,
    });
  },
});

const LLMS_TEXT = `# ${PRODUCT}

> Inventories secrets, keys and certificates of Azure, scores their compliance, and alerts before they expire. It never returns
> the value of a secret.

- [API](/openapi.json): OpenAPI 3.1 document. Send \`Authorization: Bearer <token>\`.
- [MCP server](/mcp): tools for assistants, over streamable HTTP. Send an API token or an Entra token.
- [Webhooks](/asyncapi.json): AsyncAPI 3.0 document of the events that alert rules send.

Programs can't change anything through the MCP server. They propose changes, and a person approves them on the page of the service.
`;

const llmsText = endpoint({
  name: "llmsText",
  method: "GET",
  route: "llms.txt",
  summary: "Get the description of this service for assistants",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: { description: "Markdown text.", mediaType: "text/plain", example: LLMS_TEXT } },
  handle: async () => content("text/plain; charset=utf-8", LLMS_TEXT),
});

/** Declares the MCP server. The tools are created at its first request, because they need the declarations of all areas. */
export function mcp(allEndpoints: () => Promise<Endpoint<Services>[]>): { endpoints: Endpoint<Services>[] } {
  let created: Promise<Tool[]> | undefined;
  const createTools = async () => (await import("./mcp/tools.ts")).createTools(await allEndpoints());
  const mcpMessage = endpoint({
    name: "mcp",
    method: "POST",
    route: "mcp",
    summary: "Send a message to the MCP server",
    tag,
    access: "user",
    tier: "core",
    credential: "programToken",
    via: "mcp",
    // Its messages are described by the protocol.
    undocumented: true,
    body: z.looseObject({}),
    responds: {
      200: { description: "The JSON-RPC answer.", mediaType: "application/json" },
    },
    handle: async ({ body, actor, caller, headers, url, origin, services, log }) => {
      const { answerMessage } = await import("./mcp/server.ts");
      created ??= createTools();
      const request = new Request(url, { method: "POST", headers: messageHeaders(headers) });
      const toolCaller = { actor, caller, origin, gate: services.gate, services, log };
      const { version } = builtVersion();
      const answer = await answerMessage({ request, message: body, tools: await created, caller: toolCaller, version });
      if (answer.body === "") return { status: answer.status };
      return { ...content("application/json; charset=utf-8", answer.body), status: answer.status };
    },
  });
  return { endpoints: [mcpMessage, protectedResource, llmsText] };
}

/** Returns the headers that the protocol uses. Every answer is JSON, so it does not matter what else a client accepts. */
function messageHeaders(headers: Headers): Headers {
  const messages = new Headers({ Accept: "application/json, text/event-stream", "Content-Type": "application/json" });
  headers.forEach((value, name) => {
    if (name.startsWith("mcp-")) messages.set(name, value);
  });
  return messages;
}
