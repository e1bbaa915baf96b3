import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

// Checks all Markdown pages: lengths, and that the files, commands and views that they name exist.

const root = path.resolve(import.meta.dirname, "../..");
const { scripts } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
const pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ...globSync("docs/**/*.md", { cwd: root })];

/** Returns the paths of the project that a page names: code spans such as `docs/README.md`, and the targets of links. */
function pathsIn(text: string): string[] {
  const spans = [...text.matchAll(/`([^`\s]+)`/g)].map(([, span]) => span!);
  const links = [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, link]) => link!);
  return [...spans.filter((span) => /^(?:functions|shared|infra|test|docs)\/[\w./-]*$/.test(span)), ...links];
}

/** Returns the commands in a page's `sh` blocks, with their trailing comments. Lines joined by a backslash are one command. */
function commandsIn(text: string): string[] {
  const blocks = [...text.matchAll(/^ *```sh\n(.*?)^ *```/gms)].map(([, block]) => block!);
  return blocks.flatMap((block) => block.replace(/\\\n\s*/g, "").split("\n")).filter((line) => line.trim() !== "");
}

/** Counts words like `wc -w`. */
const wordsIn = (text: string): number => text.split(/\s+/).filter((word) => word !== "").length;

test("each command of the deployment pages is part of .ci/run, or is marked ☁ because it needs Azure", () => {
  const commands = ["docs/deploy.md", "docs/deploy-options.md"].flatMap((page) =>
    commandsIn(readFileSync(path.join(root, page), "utf8")),
  );
  // Guards against a pattern that finds no commands.
  expect(commands.length).toBeGreaterThan(20);
  const runInCi = /^(?:npm ci|npm run check:infra|cd [\w./-]+)(?:\s+#.*)?$/;
  expect(commands.filter((command) => !command.includes("☁") && !runInCi.test(command))).toEqual([]);
  const folders = commands.flatMap((command) => /^cd ([\w/-]+)/.exec(command)?.[1] ?? []);
  expect(folders.filter((folder) => !existsSync(path.join(root, folder)))).toEqual([]);
});

test.each(pages)("%s names only files and commands that exist", (page) => {
  const text = readFileSync(path.join(root, page), "utf8");
  const missing = pathsIn(text).filter(
    (name) => !existsSync(path.join(root, name)) && !existsSync(path.join(root, path.dirname(page), name)),
  );
  expect(missing).toEqual([]);
  const commands = [...text.matchAll(/npm run ([a-z-]+)/g)].map(([, name]) => name!);
  expect(commands.filter((name) => !(name in scripts))).toEqual([]);
});

test("only the README names Node versions, and they match package.json", () => {
  const { engines } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
  const versions = pages.flatMap((page) => {
    const text = readFileSync(path.join(root, page), "utf8");
    return [...text.matchAll(/\bNode(?:\.js)? (v?\d.*?)(?=[,;:]|\. |\n)/g)].map(([, version]) => ({ page, version }));
  });
  // Matches `^22.18.0 || >=24.2.0`.
  const [, oldest, next] = /^\^(22\.\d+)\.0 \|\| >=(24\.\d+)\.0$/.exec(engines.node)!;
  const mentions = versions.map(({ page, version }) => `${page}: ${version}`);
  expect(mentions).toEqual([`README.md: ${oldest} or later (not 23`]);
  expect(readFileSync(path.join(root, "README.md"), "utf8")).toContain(`and 24 from ${next})`);
  const lock = JSON.parse(readFileSync(path.join(root, "package-lock.json"), "utf8"));
  expect(lock.packages[""].engines).toEqual(engines);
});

/** Generated pages, whose length depends on the code. */
const GENERATED = ["settings.md", "roles-matrix.md", "compliance.md", "compliance-controls.md", "works-with.md"].map(
  (name) => `docs/${name}`,
);
/** Maximum number of words of a page, so that a reader finds what a page says. */
const MAX_WORDS = 1_500;

test("the README has at most 1,000 words, and only the commands that start the service and run its tests", () => {
  const text = readFileSync(path.join(root, "README.md"), "utf8");
  expect(wordsIn(text), "Shorten README.md, or write the text into a page of docs/.").toBeLessThanOrEqual(1_000);
  expect(commandsIn(text)).toEqual(["npm ci && npm start", "npm ci && npm test"]);
});

test.each(pages.filter((page) => !GENERATED.includes(page)))(`%s has at most ${MAX_WORDS} words`, (page) => {
  const advice = `Shorten ${page}, or write the text into another page that docs/README.md lists.`;
  expect(wordsIn(readFileSync(path.join(root, page), "utf8")), advice).toBeLessThanOrEqual(MAX_WORDS);
});

test.each(pages)("%s names only views that exist in the page", (page) => {
  const views = readFileSync(path.join(root, "functions/web/src/views/views.ts"), "utf8");
  const routes = new Set([...views.matchAll(/path: "([^":]+?)\/?(?:"|:)/g)].map(([, route]) => route));
  const named = [...readFileSync(path.join(root, page), "utf8").matchAll(/`#(\/[\w/-]*)/g)].map(([, route]) => route!);
  expect(named.filter((route) => route !== "/" && !routes.has(route.replace(/\/$/, "")))).toEqual([]);
});

test("every page of docs/ is listed in docs/README.md", () => {
  const list = readFileSync(path.join(root, "docs/README.md"), "utf8");
  const files = globSync("docs/*.md", { cwd: root }).map((file) => path.basename(file));
  expect(files.filter((name) => name !== "README.md" && !list.includes(`](${name})`))).toEqual([]);
});

test("every decision is listed in docs/decisions/README.md and has the four parts of a decision", () => {
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

test("docs/deploy.md and docs/releases.md deploy with the same commands", () => {
  // A release has the template and the scripts as files, and needs no build.
  const inRelease = (command: string) =>
    command
      .replace("infra/azure/main.bicep", "azuredeploy.json")
      .replace("npm run build && ", "")
      .replace(/npm run (make-secrets|first-password)\b/, "node $1.mjs");
  const commandsOf = (page: string) =>
    commandsIn(readFileSync(path.join(root, page), "utf8")).map((line) => line.replace(/\s+#.*$/, "").trim());
  const deploy = commandsOf("docs/deploy.md").map(inRelease);
  const all = commandsOf("docs/releases.md");
  const ofRelease = all.slice(all.findIndex((command) => command.startsWith("az deployment sub create")));
  // The zip of a release, which deploy.md does not have.
  const ofZip = /^(az functionapp deployment source config-zip|mkdir app)/;
  expect(ofRelease.filter((command) => !ofZip.test(command) && !deploy.includes(command))).toEqual([]);
  // Guards against a change by which no command would be compared.
  expect(ofRelease.filter((command) => deploy.includes(command))).toHaveLength(5);
  // No command has a placeholder for a name that the deployment created.
  for (const command of [...commandsOf("docs/deploy.md"), ...ofRelease])
    expect(command).not.toMatch(/\b(kv|func|rg|st)-…/);
});
