import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { type BicepFile, parseBicep } from "../template-checks/bicep/parse.ts";
import { ROOT } from "../template-checks/files.ts";

/** Parses the Bicep files. Returns them by path from the project's folder. */
export async function parseBicepTemplates(): Promise<ReadonlyMap<string, BicepFile>> {
  const files = new Map<string, BicepFile>();
  for (const file of globSync("infra/azure/**/*.bicep", { cwd: ROOT }).sort()) {
    files.set(file, await parseBicep(file, readFileSync(path.join(ROOT, file), "utf8")));
  }
  return files;
}
