import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const root = path.resolve(import.meta.dirname, "../..");
/** Schemas that combine a setting with its effect on the scope join two areas. */
const JOINING = ["FeatureSetting", "RemovedOverride", "RemovedOverrides"];

const namedIn = (pattern: string): string[] =>
  globSync(pattern, { cwd: root }).flatMap((file) =>
    [...readFileSync(path.join(root, file), "utf8").matchAll(/\.meta\(\{ id: ["`]([^"`]+)/g)].map(([, id]) => id!),
  );

test("a named schema is in its area, next to the code that creates its values, unless it joins two areas", () => {
  expect(namedIn("shared/**/*api.ts").length).toBeGreaterThan(100);
  expect(namedIn("functions/*.ts").sort()).toEqual(JOINING);
});

test("views that a module creates itself are in its views.ts", () => {
  const files = globSync("shared/**/{,*-}view{,s}.ts", { cwd: root }).map((file) => path.basename(file));
  expect(files.length).toBeGreaterThan(2);
  expect(new Set(files)).toEqual(new Set(["views.ts"]));
});
