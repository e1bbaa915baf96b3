// Reads the files that the template checks need.

import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** The files to check: templates, queries and documentation pages. Paths are relative to the repository root. */
export interface InfraFiles {
  /** Text by path. */
  text: ReadonlyMap<string, string>;
  /** Returns whether a file exists in the repository, also one that is not in `text`. */
  exists(file: string): boolean;
  /** Returns the text of a file, also of one that is not in `text`. Empty if the file does not exist. */
  read(file: string): string;
  /** Returns whether the source code of scans (shared/discovery) contains a text. */
  isInSource(text: string): boolean;
  /** Returns the fields that scans write with a message: the JSON after it. */
  fieldsOf(message: string): string[];
}

export const ROOT = path.resolve(import.meta.dirname, "../..");

export function readInfraFiles(): InfraFiles {
  const paths = globSync(
    ["azure.yaml", "host.json", "infra/azure/**/*.{bicep,json,kql}", "infra/terraform/**/*.{tf,md,hcl}", "docs/*.md"],
    { cwd: ROOT },
  );
  const source = globSync("shared/discovery/**/*.ts", { cwd: ROOT })
    .map((file) => readFileSync(path.join(ROOT, file), "utf8"))
    .join("\n");
  return {
    text: new Map(paths.sort().map((file) => [file, readFileSync(path.join(ROOT, file), "utf8")])),
    exists: (file) => existsSync(path.join(ROOT, file)),
    read: (file) => (existsSync(path.join(ROOT, file)) ? readFileSync(path.join(ROOT, file), "utf8") : ""),
    isInSource: (text) => source.includes(text),
    fieldsOf: (message) => fieldsIn(source, message),
  };
}

/** Returns the fields of `const name = { … }` before `log.info("message", name`. */
function fieldsIn(source: string, message: string): string[] {
  const call = source.indexOf(`log.info("${message}", `);
  const [, name] = /^log\.info\("[^"]*", (\w+)/.exec(source.slice(call)) ?? [];
  const declaration = source.lastIndexOf(`const ${name} = {`, call);
  if (call < 0 || name === undefined || declaration < 0) return [];
  const body = source.slice(declaration, source.indexOf("};", declaration));
  return [...body.matchAll(/^\s+(\w+)[:,]/gm)].map(([, field]) => field!);
}
