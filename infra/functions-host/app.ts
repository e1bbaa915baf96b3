import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/**
 * Loads what `main` of the app's package.json names (a file or a glob), one file after the other, as the worker does
 * (`startApp.ts`, `loadScriptFile.ts` of azure-functions-nodejs-worker).
 * @throws Error naming the file that failed; on Node 20 and later that is fatal on the platform too.
 */
export async function loadApp(appFolder: string): Promise<void> {
  const packageJson: { main?: string; type?: string } = JSON.parse(
    await readFile(join(appFolder, "package.json"), "utf8"),
  );
  if (packageJson.main === undefined) throw new Error(`package.json in ${appFolder} names no "main"`);
  const files = globSync(packageJson.main, { cwd: appFolder }).sort();
  if (files.length === 0) throw new Error(`found zero files matching "main": "${packageJson.main}" in ${appFolder}`);

  for (const file of files) {
    const path = join(appFolder, file);
    try {
      if (isModule(path, packageJson.type)) await import(pathToFileURL(path).href);
      else createRequire(path)(path);
    } catch (error) {
      throw new Error(`unable to load entry point "${file}": ${describeError(error)}`, { cause: error });
    }
  }
}

function isModule(path: string, type: string | undefined): boolean {
  if (path.endsWith(".mjs")) return true;
  return !path.endsWith(".cjs") && type === "module";
}

/** For a log entry. What a function throws need not be an Error. */
export function describeError(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
