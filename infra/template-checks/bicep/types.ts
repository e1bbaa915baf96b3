import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";
import type { ObjectType, ResourceType, TypedProperty, TypeLibrary, VariantType } from "./library.ts";
import { OWN_TYPES } from "./own-types.ts";

interface Printed {
  $type: string;
  name: string;
  properties?: TypedProperty[];
  additionalPropertiesType?: string;
  bodyType?: Printed;
  /** Of a body or an object of several forms. */
  elements?: Printed[];
  baseProperties?: TypedProperty[];
  discriminator?: string;
}

/**
 * Azure's own types of the newest version that the pinned package @azure/mcp knows; for the kinds it lacks, our own
 * descriptions (own-types.ts). The package answers offline, as a server on its standard input and output.
 *
 * @throws {Error} when the package has no binary for this machine.
 */
export async function loadTypes(types: readonly string[]): Promise<TypeLibrary> {
  const library: TypeLibrary = new Map(OWN_TYPES.map((type) => [type.name.split("@")[0]!.toLowerCase(), type]));
  const asked = types.filter((type) => !library.has(type.toLowerCase()));
  for (const [type, printed] of Object.entries(await printedTypes(asked))) {
    const found = resourceType(printed);
    // The kept answers may hold a type that is described here since.
    if (found && !library.has(type.toLowerCase())) library.set(type.toLowerCase(), found);
  }
  return library;
}

/** What the package prints, kept beside it: asking takes it some seconds. */
async function printedTypes(asked: readonly string[]): Promise<Record<string, Printed[]>> {
  const manifest = createRequire(import.meta.url).resolve("@azure/mcp/package.json");
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  const kept = path.join(path.dirname(manifest), "../../.cache", `bicep-types-${version}.json`);
  const known = existsSync(kept) ? (JSON.parse(readFileSync(kept, "utf8")) as Record<string, Printed[]>) : {};
  const missing = asked.filter((type) => known[type] === undefined);
  if (missing.length === 0) return known;
  const all = { ...known, ...(await ask(missing)) };
  mkdirSync(path.dirname(kept), { recursive: true });
  writeFileSync(`${kept}.${process.pid}`, JSON.stringify(all));
  renameSync(`${kept}.${process.pid}`, kept);
  return all;
}

async function ask(asked: readonly string[]): Promise<Record<string, Printed[]>> {
  const answers: Record<string, Printed[]> = {};
  const server = openServer();
  try {
    await server.call("initialize", {
      protocolVersion: "2025-03-26",
      capabilities: {},
      clientInfo: { name: "check-infra", version: "1" },
    });
    for (const type of asked) {
      const answer = (await server.call("tools/call", {
        name: "bicepschema_get",
        arguments: { "resource-type": type },
      })) as { content: { text: string }[] };
      const printed = JSON.parse(answer.content[0]!.text) as { results?: { BicepSchemaResult?: Printed[] } };
      answers[type] = printed.results?.BicepSchemaResult ?? [];
    }
  } finally {
    server.close();
  }
  return answers;
}

function resourceType(printed: Printed[]): ResourceType | undefined {
  const resource = printed.find(({ $type }) => $type === "Resource");
  if (!resource?.bodyType) return undefined;
  const variants = printed.flatMap((one): [string, VariantType][] =>
    one.discriminator === undefined
      ? []
      : [[one.name, { discriminator: one.discriminator, forms: formsOf(one, one.name) }]],
  );
  return {
    name: resource.name,
    bodies: formsOf(resource.bodyType, resource.name),
    objects: new Map(printed.filter(({ $type }) => $type === "Object").map((one) => [one.name, one as ObjectType])),
    variants: new Map(variants),
  };
}

/** An object's forms, or the object itself where it has only one. */
function formsOf(printed: Printed, name: string): ObjectType[] {
  const { baseProperties = [], elements = [printed] } = printed;
  return elements.map(({ properties = [] }) => ({ name, properties: [...baseProperties, ...properties] }));
}

/** JSON-RPC, one message a line: https://modelcontextprotocol.io/specification/2025-03-26/basic/transports#stdio */
function openServer(): { call(method: string, params: object): Promise<unknown>; close(): void } {
  const require = createRequire(import.meta.url);
  const launcher = require.resolve("@azure/mcp/index.js");
  const server = spawn(process.execPath, [launcher, "server", "start", "--namespace", "bicepschema", "--mode", "all"], {
    env: { ...process.env, AZURE_MCP_COLLECT_TELEMETRY: "false" },
    stdio: ["pipe", "pipe", "ignore"],
  });
  const waiting = new Map<number, { resolve(result: unknown): void; reject(error: Error): void }>();
  server.on("exit", (code) => {
    for (const { reject } of waiting.values()) reject(new Error(`@azure/mcp ended with code ${code}.`));
  });
  createInterface({ input: server.stdout }).on("line", (line) => {
    if (!line.startsWith("{")) return;
    const { id, result, error } = JSON.parse(line) as { id: number; result?: unknown; error?: { message: string } };
    if (error) waiting.get(id)?.reject(new Error(error.message));
    else waiting.get(id)?.resolve(result);
    waiting.delete(id);
  });
  let last = 0;
  return {
    call: (method, params) =>
      new Promise((resolve, reject) => {
        waiting.set(++last, { resolve, reject });
        server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: last, method, params })}\n`);
      }),
    // Its own parent ends with its input; killing the launcher alone would leave the binary behind.
    close: () => server.stdin.end(),
  };
}
