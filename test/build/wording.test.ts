import { expect, test } from "vitest";
import { checkWording, ratesOf } from "../../infra/build/wording.ts";

// Tests of the check that finds the words of infra/build/vocabulary.json in comments, texts and docs.

/** Returns the findings in a file, each as line, area and found word. */
const findingsIn = (file: string, content: string) =>
  checkWording([{ file, content }]).findings.map(({ line, found, area }) => `${line} ${area} ${found}`);

test("forbidden words are found in comments, texts of the web page, API texts, docs and test names", () => {
  expect(findingsIn("shared/x.ts", "const a = 1;\n/** Nobody looks at it. */\n")).toEqual([
    "2 shared Nobody",
    "2 shared looks at",
  ]);
  expect(findingsIn("functions/web/src/x.tsx", '<Field label="Who is told of this" />')).toEqual([
    "1 page told",
    "1 page Who",
  ]);
  // Descriptions in an api.ts also count for the area `api`.
  expect(findingsIn("shared/x/api.ts", 'z.string().meta({ description: "Those that are under way." })')).toEqual([
    "1 shared under way",
    "1 shared Those",
    "1 api under way",
    "1 api Those",
  ]);
  expect(findingsIn("docs/x.md", "# A page\n\nThe scan goes on.\n")).toEqual(["3 docs goes on"]);
  expect(findingsIn("test/x.test.ts", 'test("whoever asks is answered", () => {});')).toEqual(["1 test whoever"]);
});

test("identifiers, plain sentences and code blocks of docs have no findings", () => {
  expect(findingsIn("shared/x.ts", "/** Returns the vault. */\nconst nobody = goesOn;\n")).toEqual([]);
  expect(findingsIn("docs/x.md", "Run:\n\n```sh\necho nobody\n```\n\nUse `under way`.\n")).toEqual([]);
});

test("a finding names a better term, and the rates of areas are findings per 1,000 words", () => {
  const result = checkWording([{ file: "shared/x.ts", content: `// Nobody ${"reads ".repeat(99)}\n` }]);
  expect(result.findings[0]!.better).toContain("anyone");
  expect(ratesOf(result)).toEqual(
    new Map([
      ["shared", 10],
      ["all", 10],
    ]),
  );
});
