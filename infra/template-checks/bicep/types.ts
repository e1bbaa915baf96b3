// Loads the Bicep types of Azure resources, against which the templates are checked.

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";
import type { ObjectType, ResourceType, TypedProperty, TypeLibrary, VariantType } from "./library.ts";
import { OWN_TYPES } from "./own-types.ts";

/** A type in the output of @azure/mcp. */
interface PrintedTypes {
  $type: string;
  name: string;
  properties?: TypedProperty[];
  additionalPropertiesType?: string;
  bodyType?: PrintedTypes;
  /** Properties of a body or of an object with several variants. */
  elements?: PrintedTypes[];
  baseProperties?: TypedProperty[];
  discriminator?: string;
}

/**
 * Loads resource types: from own-types.ts, and all others from the package @azure/mcp, in the newest API version that it has.
 * The package works offline, as a server on standard input and output.
 *
 * @throws {Error} if the package has no binary for this platform.
 */
export async function loadTypes(types: readonly string[]): Promise<TypeLibrary> {
  const library: TypeLibrary = new Map(OWN_TYPES.map((type) => [type.name.split("@")[0]!.toLowerCase(), type]));
  const missingTypes = types.filter((type) => !library.has(type.toLowerCase()));
  for (const [type, printed] of Object.entries(await printedTypes(missingTypes))) {
    const parsedType = resourceType(printed);
    // The cached output may contain a type that own-types.ts now defines.
    if (parsedType && !library.has(type.toLowerCase())) library.set(type.toLowerCase(), parsedType);
  }
  return library;
}

/** Returns the types as the package prints them. Takes them from a cache file if possible, because a query takes seconds. */
async function printedTypes(types: readonly string[]): Promise<Record<string, PrintedTypes[]>> {
  const manifest = createRequire(import.meta.url).resolve("@azure/mcp/package.json");
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  const cacheFile = path.join(path.dirname(manifest), "../../.cache", `bicep-types-${version}.json`);
  const cached = existsSync(cacheFile)
    ? (JSON.parse(readFileSync(cacheFile, "utf8")) as Record<string, PrintedTypes[]>)
    : {};
  const missing = types.filter((type) => cached[type] === undefined);
  if (missing.length === 0) return cached;
  const allTypes = { ...cached, ...(await queryTypes(missing)) };
  mkdirSync(path.dirname(cacheFile), { recursive: true });
  writeFileSync(`${cacheFile}.${process.pid}`, JSON.stringify(allTypes));
  renameSync(`${cacheFile}.${process.pid}`, cacheFile);
  return allTypes;
}

/** Queries the package for the types, one after the other. */
async function queryTypes(types: readonly string[]): Promise<Record<string, PrintedTypes[]>> {
  const printedByType: Record<string, PrintedTypes[]> = {};
  const server = openServer();
  try {
    await server.call("initialize", {
      protocolVersion: "2025-03-26",
      capabilities: {},
      clientInfo: { name: "check-infra", version: "1" },
    });
    for (const type of types) {
      const answer = (await server.call("tools/call", {
        name: "bicepschema_get",
        arguments: { "resource-type": type },
      })) as { content: { text: string }[] };
      const printed = JSON.parse(answer.content[0]!.text) as { results?: { BicepSchemaResult?: PrintedTypes[] } };
      printedByType[type] = printed.results?.BicepSchemaResult ?? [];
    }
  } finally {
    server.close();
  }
  return printedByType;
}

/** Converts the output for one resource type. Undefined if the package does not know the type. */
function resourceType(printed: PrintedTypes[]): ResourceType | undefined {
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

/** Returns the variants of an object, or the object itself if it has none. */
function formsOf(printed: PrintedTypes, name: string): ObjectType[] {
  const { baseProperties = [], elements = [printed] } = printed;
  return elements.map(({ properties = [] }) => ({ name, properties: [...baseProperties, ...properties] }));
}

/**
 * Calls the server by JSON-RPC, one message per line:
 * https://modelcontextprotocol.io/specification/2025-03-26/basic/transports#stdio
 */
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
  let lastId = 0;
  return {
    call: (method, params) =>
      new Promise((resolve, reject) => {
        waiting.set(++lastId, { resolve, reject });
        server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: lastId, method, params })}\n`);
      }),
    // The launcher exits when its input ends. Killing it would leave its child process running.
    close: () => server.stdin.end(),
  };
}
