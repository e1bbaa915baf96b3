import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import type { Role } from "../../shared/platform/http/endpoint.ts";
import { ADMIN, type Service } from "./service.ts";

// Helpers for tests of the MCP server. The client is the SDK's own.

/** The protocol revisions that tests use. The client speaks the earlier ones unless it is told otherwise. */
export type Revision = "2026-07-28" | "earlier";

/** An answer of a tool. */
export interface ToolResult {
  isError: boolean;
  text: string;
  /** The parsed text. */
  // biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its answer
  json: any;
}

/** A connected client. */
export interface McpClient {
  client: Client;
  call(name: string, args?: Record<string, unknown>): Promise<ToolResult>;
}

/** Creates an API token of the bootstrap administrator with a role. */
export async function createApiToken(service: Service, role: Role): Promise<string> {
  const name = `${role} ${crypto.randomUUID()}`;
  const answer = await service.admin("POST", "/auth/tokens", { name, role, expiresInDays: 30 });
  if (answer.status !== 201) throw new Error(`Creating a token answered ${answer.status}: ${answer.text}`);
  return answer.body.token;
}

export async function connectMcp(url: string, token: string, revision: Revision = "2026-07-28"): Promise<McpClient> {
  const mode = revision === "earlier" ? ("legacy" as const) : { pin: revision };
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit }));
  return {
    client,
    async call(name, args = {}) {
      const { content, isError = false } = await client.callTool({ name, arguments: args });
      const [first] = content;
      const text = first?.type === "text" ? first.text : "";
      return { isError, text, json: JSON.parse(text) };
    },
  };
}

/** Signs a user, by default the administrator, in with a browser session, and returns the headers of its requests. */
export async function sessionHeaders(
  service: Service,
  { username, password }: { username: string; password: string } = ADMIN,
): Promise<Record<string, string>> {
  const sameOrigin = { "Sec-Fetch-Site": "same-origin" };
  const answer = await service.call("POST", "/auth/login", {
    body: { username, password, session: true },
    headers: sameOrigin,
  });
  if (answer.status !== 200) throw new Error(`Signing in answered ${answer.status}: ${answer.text}`);
  const cookie = answer.headers.getSetCookie()[0]!.split(";")[0]!;
  return { ...sameOrigin, Cookie: cookie };
}
