/**
 * Writes what the page knows of the API, from the endpoints' own declarations: the types of its client
 * (functions/web/src/api/schema.d.ts) and who may call what (operations.ts). Both are made before each check and build and
 * are not kept.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { commandLine } from "./command-line.ts";

const HELP = `node infra/build/page-types.ts

Writes what the page knows of the API: functions/web/src/api/schema.d.ts and operations.ts. Every check and build does so.`;

const root = path.resolve(import.meta.dirname, "../..");
const page = path.join(root, "functions/web");
const GENERATOR = createRequire(path.join(page, "package.json")).resolve("openapi-typescript/package.json");

export async function writePageTypes(): Promise<void> {
  // Not before: a build that takes the page as it is kept needs none of the app's source.
  const { openApiText } = await import("../../functions/docs.ts");
  const { declarations } = await import("../../functions/functions.ts");
  const { mayCall, ROLES } = await import("../../shared/platform/http/endpoint.ts");
  const { endpoints } = await declarations();
  const { version } = JSON.parse(readFileSync(GENERATOR, "utf8")) as { version: string };
  const document = path.join(root, `.local/openapi-${version}.json`);
  const made = path.join(root, `.local/openapi-${process.pid}.json`);
  mkdirSync(path.dirname(document), { recursive: true });
  const text = await openApiText(endpoints);
  const types = path.join(page, "src/api/schema.d.ts");
  // Making them takes three seconds. The document gets its name last: then its types are there.
  if (!existsSync(types) || !existsSync(document) || readFileSync(document, "utf8") !== text) {
    writeFileSync(made, text);
    writeTypes(made, types);
    renameSync(made, document);
  }

  /** By the operation's name how it is called, the roles that may call it, and the tier it needs. */
  const operations = endpoints
    .filter(({ undocumented }) => !undocumented)
    .map(({ name, method, route, access, tier }) => [
      name,
      {
        method: method.toLowerCase(),
        path: `/${route}`,
        roles: ROLES.filter((role) => access === "open" || mayCall(role, access)),
        tier,
      },
    ]);
  const source = `export const OPERATIONS = ${JSON.stringify(Object.fromEntries(operations))} as const;\n`;
  writeFileSync(path.join(page, "src/api/operations.ts"), source);
}

/**
 * Writes the types of an OpenAPI document for openapi-fetch. openapi-typescript is a process of its own, with the compiler
 * that it needs and the rest of the project has not.
 */
export function writeTypes(document: string, target: string): void {
  const main = path.join(path.dirname(GENERATOR), "bin/cli.js");
  // What has a default may be left out of a request.
  const options = ["--default-non-nullable=false", "--output", target];
  execFileSync(process.execPath, [main, document, ...options], { stdio: ["ignore", "ignore", "inherit"] });
}

if (import.meta.main) {
  commandLine(HELP, {});
  await writePageTypes();
}
