// Reads the files that the template checks need.

import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Returns the text of the checked files, by path relative to the repository root. */
export interface InfraFiles {
  text: ReadonlyMap<string, string>;
  /** Includes files that are only referenced, such as queries. */
  exists(file: string): boolean;
}

export const ROOT = path.resolve(import.meta.dirname, "../..");

export function readInfraFiles(): InfraFiles {
  const found = globSync(
    ["azure.yaml", "host.json", "infra/azure/**/*.{bicep,json,kql,txt}", "infra/terraform/**/*.tf", "docs/*.md"],
    { cwd: ROOT },
  );
  return {
    text: new Map(found.sort().map((file) => [file, readFileSync(path.join(ROOT, file), "utf8")])),
    exists: (file) => existsSync(path.join(ROOT, file)),
  };
}
