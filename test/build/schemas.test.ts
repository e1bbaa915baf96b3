import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

// Checks where named schemas and views are declared. An area's schemas are in its api.ts, so that they load with its endpoints.
// Views convert stored rows to the form in API responses.

const root = path.resolve(import.meta.dirname, "../..");

/**
 * Named schemas in functions/. They combine the data of several areas, such as a setting with its effect on the scanned scope.
 */
const SCHEMAS_OF_TWO_AREAS = [
  "AssetDetails",
  "Coverage",
  "CoverageGap",
  "FeatureSetting",
  "RemovedOverride",
  "RemovedOverrides",
  "SearchGroup",
  "SearchItem",
  "SearchResult",
];

/** Returns the ids of the schemas that files declare, as in `.meta({ id: "Asset" })`. */
const schemaIdsIn = (pattern: string): string[] =>
  globSync(pattern, { cwd: root }).flatMap((file) =>
    [...readFileSync(path.join(root, file), "utf8").matchAll(/\.meta\(\{ id: ["`]([^"`]+)/g)].map(([, id]) => id!),
  );

test("named schemas are in the api.ts of their area, except for schemas of two areas", () => {
  expect(schemaIdsIn("shared/**/*api.ts").length).toBeGreaterThan(100);
  expect(schemaIdsIn("functions/*.ts").sort()).toEqual(SCHEMAS_OF_TWO_AREAS);
});

test("files with views are all called views.ts", () => {
  const files = globSync("shared/**/{,*-}view{,s}.ts", { cwd: root }).map((file) => path.basename(file));
  expect(files.length).toBeGreaterThan(2);
  expect(new Set(files)).toEqual(new Set(["views.ts"]));
});
