// Reads the files that the template checks need.

import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** The files to check: templates, queries and documentation pages. Paths are relative to the repository root. */
export interface InfraFiles {
  /** Text by path. */
  text: ReadonlyMap<string, string>;
  /** Returns whether a file exists in the repository, also one that is not in `text`. */
  exists(file: string): boolean;
  /** Returns whether the source code of scans (shared/discovery) contains a text. */
  isInSource(text: string): boolean;
}

export const ROOT = path.resolve(import.meta.dirname, "../..");

export function readInfraFiles(): InfraFiles {
  const paths = globSync(
    ["azure.yaml", "host.json", "infra/azure/**/*.{bicep,json,kql,txt}", "infra/terraform/**/*.{tf,md}", "docs/*.md"],
    { cwd: ROOT },
  );
  const source = globSync("shared/discovery/**/*.ts", { cwd: ROOT })
    .map((file) => readFileSync(path.join(ROOT, file), "utf8"))
    .join("\n");
  return {
    text: new Map(paths.sort().map((file) => [file, readFileSync(path.join(ROOT, file), "utf8")])),
    exists: (file) => existsSync(path.join(ROOT, file)),
    isInSource: (text) => source.includes(text),
  };
}
