import { globSync } from "node:fs";
import type { Part } from "./part.ts";

/** Returns the parts, by the names of their files. */
export async function readParts(): Promise<Part[]> {
  const files = globSync("parts/*.ts", { cwd: import.meta.dirname }).sort();
  return await Promise.all(files.map(async (file) => ((await import(`./${file}`)) as { part: Part }).part));
}
