import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Service } from "../../../test/support/service.ts";
import { observe } from "../case.ts";
import { installedFromNpm } from "../npm.ts";
import type { Part } from "../part.ts";

// Linters of API descriptions read /openapi.json. The rules that are off, and why, are in linters/.

const RULES = path.join(import.meta.dirname, "../linters");
const LINTERS = ["spectral", "redocly"] as const;
type Linter = (typeof LINTERS)[number];

const ARGUMENTS: Record<Linter, string[]> = {
  spectral: [
    "lint",
    "--ruleset",
    path.join(RULES, "spectral.yaml"),
    "--fail-severity",
    "hint",
    "--format",
    "json",
    "--quiet",
  ],
  redocly: ["lint", "--config", path.join(RULES, "redocly.yaml"), "--format", "json"],
};

export const part: Part = {
  name: "openapi-linters",
  description: "linters find no error and no warning in /openapi.json",
  programs: LINTERS,
  needs: [],
  limits: [
    "Spectral's `info-contact`, Redocly's `info-license` and, for the four operations that only redirect, its `operation-2xx-response` are off.",
  ],
  async *run() {
    const bin = path.join(installedFromNpm("linters", LINTERS), ".bin");
    const service = await Service.start({ company: "small" });
    try {
      const { text } = await service.call("GET", "/openapi.json");
      const folder = mkdtempSync(path.join(tmpdir(), "linters-"));
      const file = path.join(folder, "openapi.json");
      const brokenFile = path.join(folder, "broken.json");
      writeFileSync(file, text);
      // An example of the wrong type.
      const broken = JSON.parse(text);
      broken.components.schemas.Asset.properties.name.example = 7;
      writeFileSync(brokenFile, JSON.stringify(broken));
      for (const program of LINTERS) {
        const lint = (description: string) => findings(path.join(bin, program), [...ARGUMENTS[program], description]);
        yield { program, ...(await observe("errors and warnings", "none", () => lint(file))) };
        yield {
          program,
          ...(await observe("an example of the wrong type is found", /example/, () => lint(brokenFile))),
        };
      }
    } finally {
      await service.stop();
    }
  },
};

/**
 * Runs a linter.
 * @returns `none`, or the rules that the description breaks, with their number
 *
 * @throws {Error} with the linter's output, if it is not JSON
 */
const findings = (program: string, args: string[]): Promise<string> =>
  new Promise((resolve, reject) => {
    execFile(
      program,
      args,
      { maxBuffer: 50_000_000, env: { ...process.env, REDOCLY_TELEMETRY: "off" } },
      (_, out, err) => {
        try {
          // No output counts as no finding. A linter that never prints one fails the case with the broken description.
          const output = JSON.parse(out || "[]");
          // Spectral prints an array of findings with their `code`, Redocly an object with `problems`.
          const rules: string[] = (output.problems ?? output).map(
            (one: { code?: string; ruleId?: string }) => one.code ?? one.ruleId,
          );
          const counts = Object.entries(Object.groupBy(rules, (rule) => rule)).map(
            ([rule, all]) => `${rule}: ${all!.length}`,
          );
          resolve(counts.join(", ") || "none");
        } catch {
          reject(new Error(err.trim() || out.slice(-300)));
        }
      },
    );
  });
