import { expect, test } from "vitest";
import { checkWording, ratesOf } from "../../infra/build/wording.ts";

const found = (file: string, content: string) =>
  checkWording([{ file, content }]).findings.map(({ line, found, area }) => `${line} ${area} ${found}`);

test("a planted sentence is found in a comment, a text of the page, an API text, a page of docs and a test name", () => {
  expect(found("shared/x.ts", "const a = 1;\n/** Nobody looks at it. */\n")).toEqual([
    "2 shared Nobody",
    "2 shared looks at",
  ]);
  expect(found("functions/web/src/x.tsx", '<Field label="Who is told of this" />')).toEqual([
    "1 page told",
    "1 page Who",
  ]);
  expect(found("shared/x/api.ts", 'z.string().meta({ description: "Those that are under way." })')).toEqual([
    "1 shared under way",
    "1 shared Those",
    "1 api under way",
    "1 api Those",
  ]);
  expect(found("docs/x.md", "# A page\n\nThe scan goes on.\n")).toEqual(["3 docs goes on"]);
  expect(found("test/x.test.ts", 'test("whoever asks is answered", () => {});')).toEqual(["1 test whoever"]);
});

test("code, plain sentences and code blocks of a page have no findings", () => {
  expect(found("shared/x.ts", "/** Returns the vault. */\nconst nobody = goesOn;\n")).toEqual([]);
  expect(found("docs/x.md", "Run:\n\n```sh\necho nobody\n```\n\nUse `under way`.\n")).toEqual([]);
});

test("a finding names the better term, and the rate is per 1,000 words", () => {
  const result = checkWording([{ file: "shared/x.ts", content: `// Nobody ${"reads ".repeat(99)}\n` }]);
  expect(result.findings[0]!.better).toContain("anyone");
  expect(ratesOf(result)).toEqual(
    new Map([
      ["shared", 10],
      ["all", 10],
    ]),
  );
});
