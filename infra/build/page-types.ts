/**
 * Generates the page's view of the API from the endpoint declarations: the types of its client
 * (functions/web/src/api/schema.d.ts) and the permissions of each endpoint (operations.ts). Both are generated before each
 * check and build and are not committed.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { commandLine } from "./command-line.ts";

const HELP = `node infra/build/page-types.ts

Generates the page's API types: functions/web/src/api/schema.d.ts and operations.ts. Every check and build runs this command.`;

const root = path.resolve(import.meta.dirname, "../..");
const page = path.join(root, "functions/web");
const GENERATOR = createRequire(path.join(page, "package.json")).resolve("openapi-typescript/package.json");

export async function writePageTypes(): Promise<void> {
  // Imported here, because a build that reuses the cached page does not need the app's source.
  const { openApiText } = await import("../../functions/docs.ts");
  const { declarations } = await import("../../functions/functions.ts");
  const { mayCall, ROLES } = await import("../../shared/platform/http/endpoint.ts");
  const { endpoints } = await declarations();
  const { version } = JSON.parse(readFileSync(GENERATOR, "utf8")) as { version: string };
  const cachedDocument = path.join(root, `.local/openapi-${version}.json`);
  const newDocument = path.join(root, `.local/openapi-${process.pid}.json`);
  mkdirSync(path.dirname(cachedDocument), { recursive: true });
  const text = await openApiText(endpoints);
  const types = path.join(page, "src/api/schema.d.ts");
  // Generating the types takes three seconds, so it is skipped while the document is unchanged. The document is renamed last,
  // so its existence means that the types exist.
  if (!existsSync(types) || !existsSync(cachedDocument) || readFileSync(cachedDocument, "utf8") !== text) {
    writeFileSync(newDocument, text);
    writeTypes(newDocument, types);
    renameSync(newDocument, cachedDocument);
  }

  /** The method, path, permitted roles and tier ("core", or "pro" with a license) of each operation. */
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
 * Writes the types of an OpenAPI document for openapi-fetch. openapi-typescript runs in a separate process, because it needs a
 * compiler version that the project does not use.
 */
export function writeTypes(documentFile: string, target: string): void {
  const main = path.join(path.dirname(GENERATOR), "bin/cli.js");
  // A property with a default is optional in a request.
  const options = ["--default-non-nullable=false", "--output", target];
  execFileSync(process.execPath, [main, documentFile, ...options], { stdio: ["ignore", "ignore", "inherit"] });
}

if (import.meta.main) {
  commandLine(HELP, {});
  await writePageTypes();
}
