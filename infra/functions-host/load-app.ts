import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/**
 * Loads the app's entry points: the file or glob in `main` of its package.json, one file after the other, as the Node worker
 * does (`startApp.ts`, `loadScriptFile.ts` of azure-functions-nodejs-worker).
 * @throws Error that names the file that failed. The platform also stops on such an error (on Node 20 and later).
 */
export async function loadApp(appFolder: string): Promise<void> {
  const packageJson: { main?: string; type?: string } = JSON.parse(
    await readFile(join(appFolder, "package.json"), "utf8"),
  );
  if (packageJson.main === undefined) throw new Error(`package.json in ${appFolder} has no "main"`);
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

/** Formats a thrown value for a log entry. A function can throw values that are not Errors. */
export function describeError(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
