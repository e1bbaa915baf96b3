/**
 * Checks the wording of comments, texts of the page and the API, docs and test names against `vocabulary.json`. That file lists
 * words and sentence openings to avoid, as regular expressions, each with a better term. Part of `npm run check`.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { commandLine } from "./command-line.ts";

/**
 * Maximum findings per 1,000 words of each area. The check fails if an area exceeds its maximum. `areaOf` defines the areas.
 */
export const BOUNDS: Readonly<Record<string, number>> = { page: 1, alerts: 1, functions: 1, api: 1, all: 2 };

const HELP = `node infra/build/wording.ts [--all] [FOLDER]

Counts words and sentence openings of vocabulary.json in comments, texts, docs and test names. Prints the findings of each area
that exceeds its bound, with the better term. Exits with 1 if there is such an area.

  --all    also print the findings of the other areas
  FOLDER   folder to check (default: this project)`;

interface Text {
  line: number;
  text: string;
}

export interface Finding extends Text {
  file: string;
  area: string;
  found: string;
  better: string;
}

const vocabulary: { words: [string, string][]; openings: [string, string][] } = JSON.parse(
  readFileSync(path.join(import.meta.dirname, "vocabulary.json"), "utf8"),
);
const RULES = [
  ...vocabulary.words.map(([pattern, better]) => ({ pattern: new RegExp(`\\b(?:${pattern})\\b`, "gi"), better })),
  // An opening counts only at the start of a sentence. "What to …" and "What happens …" are allowed.
  ...vocabulary.openings.map(([pattern, better]) => ({
    pattern: new RegExp(`(?:^|[.:;] )(?:${pattern})\\b(?! (?:to|happens)\\b)`, "g"),
    better,
  })),
];

const CHECKED_FILES = /\.(?:ts|tsx|mts|md|bicep|tf)$/;
const EXCLUDED_FILES = /fixtures|vectors|CHANGELOG|BENCHMARKS|\.d\.ts$/;

// Patterns of the texts in source files. The last group that matched is the text.
const COMMENT = /\/\*\*?([\s\S]*?)\*\/|(?:^|\s)\/\/ ?(.*)$/gm;
const HASH_COMMENT = /(?:^|\s)# ?(.*)$/gm;
const TEXT_PROPERTY =
  /\b(?:summary|description|title|detail|remedy|message|label|hint|text|rationale):\s*(["`])((?:(?!\1).){12,})\1/g;
/** A description of a schema: `.describe("…")`, or the default of a member. */
const DESCRIPTION = /\b(?:describe|described)\(\s*(["`])((?:(?!\1).){4,})\1/g;
const ATTRIBUTE = /\b(?:label|title|hint|placeholder)="([^"]{4,})"/g;
const ELEMENT = />\s*([A-Z][^<>{}=;]{11,}?)\s*</g;
const TEST_NAME = /\b(?:test|describe|it)(?:\.\w+(?:\([^)]*\))?)*\(\s*(["`])((?:(?!\1).){8,})\1/g;
const OPERATION_TEXT = /\b(?:summary|description):\s*(["`])((?:(?!\1).){4,})\1/g;

/** Returns the texts of a file that people read. */
function textsOf(file: string, content: string): Text[] {
  if (file.endsWith(".md")) {
    const withoutCode = content.replace(/```[\s\S]*?```/g, (block) => block.replace(/[^\n]/g, ""));
    return withoutCode
      .split("\n")
      .map((text, index) => ({ line: index + 1, text: text.replace(/`[^`]*`/g, "x") }))
      .filter(({ text }) => text.trim() !== "");
  }
  const patterns = [/\.(?:tf)$/.test(file) ? HASH_COMMENT : COMMENT, TEXT_PROPERTY, DESCRIPTION];
  if (file.endsWith(".tsx")) patterns.push(ATTRIBUTE, ELEMENT);
  if (/(?:^|\/)test\//.test(file)) patterns.push(TEST_NAME);
  return patterns.flatMap((pattern) => matchesOf(pattern, content));
}

function matchesOf(pattern: RegExp, content: string): Text[] {
  return [...content.matchAll(pattern)].map((match) => ({
    line: content.slice(0, match.index).split("\n").length,
    text: (match.slice(1).findLast((group) => group !== undefined) ?? "").replace(/\s*\n\s*\*?\s?/g, " ").trim(),
  }));
}

function areaOf(file: string): string {
  if (file.startsWith("functions/web")) return "page";
  if (file.startsWith("shared/alerts/")) return "alerts";
  if (file.endsWith(".md")) return "docs";
  return file.split("/")[0]!;
}

/** Returns the findings and the number of words per area, of these files. `api` counts the texts of the API once more. */
export function checkWording(files: readonly { file: string; content: string }[]) {
  const words = new Map<string, number>();
  const findings: Finding[] = [];
  const add = (area: string, file: string, texts: readonly Text[]) => {
    for (const { line, text } of texts) {
      words.set(area, (words.get(area) ?? 0) + text.split(/\s+/).length);
      for (const { pattern, better } of RULES) {
        for (const [found] of text.matchAll(pattern)) findings.push({ file, line, text, area, found, better });
      }
    }
  };
  for (const { file, content } of files) {
    add(areaOf(file), file, textsOf(file, content));
    if (/^functions\/[^/]+\.ts$|\/api\.ts$/.test(file)) add("api", file, matchesOf(OPERATION_TEXT, content));
  }
  return { words, findings };
}

/** Returns the findings per 1,000 words of each area, and of all areas. */
export function ratesOf({ words, findings }: ReturnType<typeof checkWording>): Map<string, number> {
  const areas = [...words.keys()].filter((area) => area !== "api");
  const rate = (areaNames: readonly string[]) => {
    const total = areaNames.reduce((sum, name) => sum + (words.get(name) ?? 0), 0);
    return total === 0 ? 0 : (1000 * findings.filter(({ area }) => areaNames.includes(area)).length) / total;
  };
  return new Map([...[...words.keys()].map((area) => [area, rate([area])] as const), ["all", rate(areas)] as const]);
}

if (import.meta.main) {
  const { values, positionals } = commandLine(HELP, {
    options: { all: { type: "boolean" } },
    allowPositionals: true,
  });
  const root = path.resolve(positionals[0] ?? path.join(import.meta.dirname, "../.."));
  const fileNames = execFileSync("git", ["ls-files"], { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 })
    .split("\n")
    .filter((file) => CHECKED_FILES.test(file) && !EXCLUDED_FILES.test(file));
  const result = checkWording(
    fileNames.map((file) => ({ file, content: readFileSync(path.join(root, file), "utf8") })),
  );
  const rates = [...ratesOf(result)].sort();
  const exceeded = rates.filter(([area, rate]) => rate > (BOUNDS[area] ?? Number.POSITIVE_INFINITY));
  const isPrinted = (area: string) => exceeded.some(([name]) => name === area || name === "all") || values.all;
  for (const { file, line, found, better, area } of result.findings.filter((finding) => isPrinted(finding.area)))
    console.log(`${file}:${line} [${area}] "${found.replace(/^[.:;] /, "")}": better: ${better}`);
  for (const [area, rate] of rates) {
    const bound = BOUNDS[area] === undefined ? "" : ` (at most ${BOUNDS[area]})`;
    console.log(`${area.padEnd(10)} ${rate.toFixed(1).padStart(6)} per 1,000 words${bound}`);
  }
  if (exceeded.length > 0) process.exitCode = 1;
}
