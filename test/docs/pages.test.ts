import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const root = path.resolve(import.meta.dirname, "../..");
const { scripts } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
const pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ...globSync("docs/**/*.md", { cwd: root })];

/** Names in code spans that are paths of the project, without placeholders. */
function pathsIn(text: string): string[] {
  const spans = [...text.matchAll(/`([^`\s]+)`/g)].map(([, span]) => span!);
  const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link]) => link!);
  return [...spans.filter((span) => /^(?:functions|shared|infra|test|docs)\/[\w./-]*$/.test(span)), ...links];
}

test.each(pages)("%s names only files and commands that exist", (page) => {
  const text = readFileSync(path.join(root, page), "utf8");
  const missing = pathsIn(text).filter(
    (name) => !existsSync(path.join(root, name)) && !existsSync(path.join(root, path.dirname(page), name)),
  );
  expect(missing).toEqual([]);
  const commands = [...text.matchAll(/npm run ([a-z-]+)/g)].map(([, name]) => name!);
  expect(commands.filter((name) => !(name in scripts))).toEqual([]);
});

test("every decision is listed, and says context, decision, consequence and source on a page", () => {
  const list = readFileSync(path.join(root, "docs/decisions/README.md"), "utf8");
  const decisions = globSync("docs/decisions/0*.md", { cwd: root });
  expect(decisions.length).toBeGreaterThanOrEqual(12);
  for (const file of decisions) {
    const text = readFileSync(path.join(root, file), "utf8");
    expect(list).toContain(`(${path.basename(file)})`);
    for (const part of ["Context", "Decision", "Consequence", "Source"]) expect(text, file).toContain(`**${part}.** `);
    expect(text.split("\n").length, file).toBeLessThan(60);
  }
});
