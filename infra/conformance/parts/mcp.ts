import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { licence } from "../../../test/support/licence.ts";
import { createApiToken, sessionHeaders } from "../../../test/support/mcp.ts";
import { Service } from "../../../test/support/service.ts";
import { installedFromNpm } from "../npm.ts";
import { caseRunner, type Part } from "../part.ts";
import { runPython } from "../python.ts";

// The MCP server, called by the Python SDK of the protocol and by the command line of its inspector.

interface ToolCall {
  name: string;
  arguments?: object;
}

/** Output of python/call_mcp.py. */
interface Answers {
  protocol: string;
  tools: string[];
  // biome-ignore lint/suspicious/noExplicitAny: answers of tools, of which the cases read a few members
  results: { isError: boolean; json: any }[];
}

const VALUES = Array.from({ length: 40 }, (_, index) => `planted-${index}-${crypto.randomUUID()}`);
const name = (index: number) => `secret-${String(index).padStart(2, "0")}`;

export const part: Part = {
  name: "mcp",
  description: "foreign clients of the Model Context Protocol list and call the tools, and propose a change",
  programs: ["mcp", "mcpInspector"],
  needs: ["python"],
  async *run() {
    const runCase = caseRunner("mcp");
    const secrets = VALUES.map((value, index) => ({ name: name(index), value, expiresInDays: index - 5 }));
    const service = await Service.start({
      company: { subscriptions: [{ name: "Main", vaults: [{ name: "kv-a", secrets }] }] },
      env: { LICENSE_KEY: await licence() },
    });
    try {
      await service.scan();
      const [reader, admin] = [await createApiToken(service, "user"), await createApiToken(service, "admin")];
      const url = `${service.url}/mcp`;
      const ask = async (calls: ToolCall[], token = reader, mode = "auto") =>
        JSON.parse(await runPython("call_mcp.py", { url, token, mode, calls })) as Answers;

      yield await runCase("protocol revision and tools", "2026-07-28, 25 tools", async () => {
        const { protocol, tools } = await ask([]);
        return `${protocol}, ${tools.length} tools`;
      });
      yield await runCase(
        "protocol revision and tools, with the earlier handshake",
        "2025-11-25, 25 tools",
        async () => {
          const { protocol, tools } = await ask([], reader, "legacy");
          return `${protocol}, ${tools.length} tools`;
        },
      );
      yield await runCase("number of expired secrets", "6", async () => {
        const { results } = await ask([{ name: "find_assets", arguments: { status: "expired", limit: 50 } }]);
        return `${results[0]!.json.data.items.length}`;
      });
      yield await runCase("pages of a list", `${VALUES.length} secrets, each once`, async () => {
        const seen: string[] = [];
        let cursor: string | null = null;
        do {
          const page: object = { vault: "kv-a", limit: 7, ...(cursor !== null && { cursor }) };
          const answers: Answers = await ask([{ name: "find_assets", arguments: page }]);
          const { data } = answers.results[0]!.json;
          seen.push(...data.items.map((asset: { name: string }) => asset.name));
          cursor = data.nextCursor;
        } while (cursor !== null);
        return `${seen.length} secrets, ${new Set(seen).size === seen.length ? "each once" : "some twice"}`;
      });
      yield await runCase("a tool that needs another role", "forbidden", async () => {
        const { isError, json } = (await ask([{ name: "audit_entries" }])).results[0]!;
        return isError ? json.code : "allowed";
      });
      yield await runCase("a wrong token", "rejected", () =>
        ask([], "wrong").then(
          () => "accepted",
          () => "rejected",
        ),
      );
      yield await runCase("values of secrets in the details of all secrets", "0 of 40", async () => {
        const calls = VALUES.map((_, index) => ({
          name: "asset_details",
          arguments: { asset_id: `kv-a.secret.${name(index)}` },
        }));
        const text = JSON.stringify((await ask(calls)).results);
        return `${VALUES.filter((value) => text.includes(value)).length} of ${VALUES.length}`;
      });
      yield await runCase(
        "a proposal, approved with its token, then in a session",
        "pending, sessionOnly, done",
        async () => {
          const change = {
            name: "updatePerformanceSettings",
            body: { discoveryMaxWorkers: 7 },
            reason: "Faster scans",
          };
          const { proposal } = (await ask([{ name: "propose_change", arguments: change }], admin)).results[0]!.json
            .data;
          const approval = `/api/proposals/${proposal.id}/approve`;
          const byToken = await service.call("POST", approval, { token: admin });
          const byPerson = await service.call("POST", approval, { headers: await sessionHeaders(service) });
          return [proposal.state, byToken.body.code, byPerson.body.state].join(", ");
        },
      );

      const runInspectorCase = caseRunner("mcpInspector");
      const inspector = path.join(installedFromNpm("mcp-inspector", ["mcpInspector"]), ".bin/mcp-inspector");
      const inspect = async (token: string, ...args: string[]) => {
        const server = ["--cli", url, "--transport", "http", "--header", `Authorization: Bearer ${token}`];
        const { stdout } = await promisify(execFile)(process.execPath, [inspector, ...server, ...args], {
          maxBuffer: 10_000_000,
        });
        return JSON.parse(stdout);
      };
      const call = (tool: string, ...args: string[]) => [
        "--method",
        "tools/call",
        "--tool-name",
        tool,
        ...args.flatMap((arg) => ["--tool-arg", arg]),
      ];
      yield await runInspectorCase("tools", "25", async () => {
        return `${(await inspect(reader, "--method", "tools/list")).tools.length}`;
      });
      yield await runInspectorCase("details of an asset", "kv-a.secret.secret-07", async () => {
        const { content } = await inspect(reader, ...call("asset_details", "asset_id=kv-a.secret.secret-07"));
        return JSON.parse(content[0].text).data.id;
      });
      yield await runInspectorCase("a wrong token", "rejected", () =>
        inspect("wrong", "--method", "tools/list").then(
          () => "accepted",
          () => "rejected",
        ),
      );
    } finally {
      await service.stop();
    }
  },
};
