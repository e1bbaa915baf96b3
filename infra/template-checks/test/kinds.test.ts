import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import type { TypeLibrary } from "../bicep/library.ts";
import { loadTypes } from "../bicep/types.ts";
import { checkInfra, parseTemplates, type Templates, typesIn } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Change, MISTAKES_BY_KIND } from "./mistakes-by-kind.ts";

// Tests that the checks find kinds of mistakes, each planted in the real files in memory: in Bicep and Terraform at once, so that
// a comparison finds no difference, and in one language alone.

const files = readInfraFiles();
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: object };
let templates: Templates;
let types: TypeLibrary;

beforeAll(async () => {
  templates = await parseTemplates(files);
  types = await loadTypes(typesIn(templates));
});

/** Returns the messages of the findings after the changes. */
async function messagesAfter(changes: readonly Change[]): Promise<string[]> {
  const text = new Map(files.text);
  for (const [file, original, replacement] of changes) {
    const before = text.get(file)!;
    expect(before).toContain(original);
    text.set(
      file,
      before.replace(original, () => replacement),
    );
  }
  const changed = await parseTemplates({ ...files, text }, templates);
  return checkInfra({ templates: changed, types, scripts: Object.keys(scripts) }).findings.map(
    ({ message }) => message,
  );
}

describe.each(MISTAKES_BY_KIND)("$kind: $what", ({ bicep, terraform, message }) => {
  test("is found in both languages at once", async () => {
    expect(await messagesAfter([...bicep, ...terraform])).toContainEqual(expect.stringMatching(message));
  });

  test.each([bicep, terraform].filter((changes) => changes.length > 0))(
    "is found in one language alone",
    async (...changes) => {
      expect(await messagesAfter(changes)).not.toEqual([]);
    },
  );
});
