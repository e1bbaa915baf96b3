import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import type { TypeLibrary } from "../../infra/check/bicep/library.ts";
import { loadTypes } from "../../infra/check/bicep/types.ts";
import { checkInfra, parseTemplates, type Templates, typesIn } from "../../infra/check/check.ts";
import type { Finding } from "../../infra/check/expression.ts";
import { readInfraFiles } from "../../infra/check/files.ts";
import { Dice } from "../../infra/local/cloud/company/dice.ts";
import { allMistakes, type Mistake } from "./mistakes.ts";

const SEED = Number(process.env.INFRA_SEED ?? 20261121);
const files = readInfraFiles();
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: object };
let templates: Templates;
let types: TypeLibrary;

beforeAll(async () => {
  templates = await parseTemplates(files);
  types = await loadTypes(typesIn(templates));
}, 180_000);

async function findingsWith(changed: ReadonlyMap<string, string> = new Map()): Promise<Finding[]> {
  const text = new Map([...files.text, ...changed]);
  const spoilt = await parseTemplates({ ...files, text }, templates);
  return checkInfra({ templates: spoilt, types, scripts: Object.keys(scripts) }).findings;
}

/** Whether the check finds anything in the files with this mistake in them. */
async function foundOf({ file, text }: Mistake): Promise<boolean> {
  return (await findingsWith(new Map([[file, text]]))).length > 0;
}

function grouped(mistakes: readonly Mistake[], by: (mistake: Mistake) => string): Mistake[][] {
  const groups = new Map<string, Mistake[]>();
  for (const mistake of mistakes) groups.set(by(mistake), [...(groups.get(by(mistake)) ?? []), mistake]);
  return [...groups.values()];
}

test("the templates hold what the check asks for, on both sides", async () => {
  const { findings, table } = checkInfra({ templates, types, scripts: Object.keys(scripts) });
  expect(findings).toEqual([]);
  expect(table.length).toBeGreaterThan(50);
  expect(table.filter(({ terraform }) => terraform === "MISSING")).toEqual([]);
});

test(`of mistakes planted by seed ${SEED}, at least 19 of 20 are found`, { timeout: 300_000 }, async () => {
  const dice = new Dice(SEED);
  const all = allMistakes(files.text);
  const chosen = new Set([
    ...grouped(all, ({ subject }) => subject).flatMap((group) => dice.sample(group, 2)),
    ...grouped(all, ({ kind }) => kind).flatMap((group) => dice.sample(group, 2)),
  ]);
  expect(chosen.size).toBeGreaterThan(100);
  const missed: string[] = [];
  for (const mistake of chosen) {
    if (!(await foundOf(mistake))) missed.push(`${mistake.file}:${mistake.line} ${mistake.kind}: ${mistake.what}`);
  }
  console.log(
    `${chosen.size - missed.length} of ${chosen.size} found${missed.map((one) => `\n  not found: ${one}`).join("")}`,
  );
  expect(missed.length).toBeLessThanOrEqual(chosen.size / 20);
});

describe("taken out of one side", () => {
  const all = allMistakes(files.text);
  const resources = all.filter(
    ({ kind, subject }) => kind === "blockRemoved" && /^(Microsoft\.|azurerm_)/.test(subject),
  );
  const settings = all.filter(
    ({ kind, what }) =>
      kind === "removed" && /^[A-Z][A-Za-z_]+_?\w*\s*[:=]/.test(what) && /[A-Z_]{6}|AzureWebJobs/.test(what),
  );

  test("each resource and each role is missed", { timeout: 300_000 }, async () => {
    expect(resources.length).toBeGreaterThan(70);
    for (const resource of resources) expect([resource.what, await foundOf(resource)]).toEqual([resource.what, true]);
  });

  test("each setting is missed", { timeout: 300_000 }, async () => {
    expect(settings.length).toBeGreaterThan(30);
    for (const setting of settings) expect([setting.what, await foundOf(setting)]).toEqual([setting.what, true]);
  });
});
