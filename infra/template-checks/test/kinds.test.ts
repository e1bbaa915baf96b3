import { readFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import { LONG_MS, sampled } from "../../../test/support/sampling.ts";
import type { TypeLibrary } from "../bicep/library.ts";
import { loadTypes } from "../bicep/types.ts";
import { checkInfra, parseTemplates, type Templates, typesIn } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Change, MISTAKES_BY_KIND } from "./mistakes-by-kind.ts";

// Tests that the checks find each mistake of `mistakes-by-kind.ts`, planted in memory in the real files. A mistake is planted
// in Bicep and Terraform at once, so that a comparison finds no difference, and in one language alone. The test suite tries a
// random sample of the latter, and a campaign tries all.

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

test.each(MISTAKES_BY_KIND)("$kind: $what, in both languages at once", async ({ bicep, terraform, message }) => {
  expect(await messagesAfter([...bicep, ...terraform])).toContainEqual(expect.stringMatching(message));
});

test("the same mistakes in one language alone", { timeout: LONG_MS }, async () => {
  const alone = MISTAKES_BY_KIND.flatMap(({ what, bicep, terraform }) =>
    [bicep, terraform].filter((changes) => changes.length > 0).map((changes) => ({ what, changes })),
  );
  expect(alone.length).toBeGreaterThan(75);
  for (const { what, changes } of sampled(alone, 10)) {
    expect([what, (await messagesAfter(changes)).length]).not.toEqual([what, 0]);
  }
});
