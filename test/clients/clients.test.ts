/** Tests docs/clients.md: runs the commands and the programs of the page against one service. */
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { pythonPackages } from "../support/python.ts";
import { ADMIN, Service } from "../support/service.ts";
import { skipWithout } from "../support/tools.ts";

const root = path.resolve(import.meta.dirname, "../..");
const page = readFileSync(path.join(root, "docs/clients.md"), "utf8");
/** The parent of the work folder. It is in the project's folder, so that Node and the compiler find the packages. */
const folder = path.join(root, ".local");

/** A code block of the page. */
interface Block {
  language: string;
  /** The file that the page asks the reader to create with this content, as in "```ts client.ts". */
  file: string | undefined;
  text: string;
}
const blocks: Block[] = [...page.matchAll(/^```(\w+)(?: (\S+))?\n(.*?)^```/gms)].map(([, language, file, text]) => ({
  language: language!,
  file,
  text: text!,
}));
/** Returns the commands under a heading. Lines joined by a backslash are one command. */
const commandsUnder = (heading: string): string[] =>
  blocksUnder(heading).flatMap(({ text }) =>
    text
      .replace(/\\\n\s*/g, "")
      .trim()
      .split("\n"),
  );
const blocksUnder = (heading: string): Block[] => {
  const begin = page.indexOf(`\n## ${heading}\n`);
  const end = page.indexOf("\n## ", begin + 1);
  const part = page.slice(begin, end < 0 ? undefined : end);
  return blocks.filter(({ language, text }) => language === "sh" && part.includes(text));
};

let service: Service;
/** The folder in which the commands run. */
let workFolder: string;
let token: string;
/** The lines that the programs must print for the assets, one per asset. */
let expectedAssetLines: string[];

beforeAll(async () => {
  service = await Service.start();
  await service.scan();
  token = await service.signIn(ADMIN);
  const assets = await service.listAll("/api/assets/discovery/assets");
  expectedAssetLines = assets.map(({ id, status, daysUntilExpiry }) => `asset ${id} ${status} ${daysUntilExpiry}`);
  expect(expectedAssetLines.length).toBeGreaterThan(4);
  mkdirSync(folder, { recursive: true });
  workFolder = mkdtempSync(path.join(folder, "clients-"));
  for (const { file, text } of blocks) if (file) writeFileSync(path.join(workFolder, file), text);
});
afterAll(async () => {
  rmSync(workFolder, { recursive: true, force: true });
  await service.stop();
});

/** Runs a program in the work folder and returns its output. Throws an error with the output if the program fails. */
function run(program: string, args: string[], extra: Record<string, string> = {}): Promise<string> {
  const bin = [path.join(root, "node_modules/.bin"), path.join(root, "functions/web/node_modules/.bin")];
  const env = {
    PATH: [...bin, process.env.PATH].join(path.delimiter),
    HOME: process.env.HOME,
    SERVICE: service.url,
    TOKEN: token,
    USERNAME: ADMIN.username,
    PASSWORD: ADMIN.password,
    ...extra,
  };
  return new Promise((resolve, reject) => {
    execFile(program, args, { cwd: workFolder, env }, (error, out, err) => {
      if (error) reject(new Error(`${program} ${args.join(" ")} ended with ${error.code}:\n${out}\n${err}`));
      else resolve(out + err);
    });
  });
}
const sh = (command: string, extra?: Record<string, string>) => run("sh", ["-euc", command], extra);

/**
 * Checks the output of a program of the page, which is the same for TypeScript and Python.
 *
 * @param none - How the language prints null.
 */
function expectProgramOutput(out: string, none: string): void {
  const lines = out.trim().split("\n");
  expect(lines.slice(0, expectedAssetLines.length)).toEqual(
    expectedAssetLines.map((line) => line.replace(/null$/, none)),
  );
  const [csv, pdf, exempted, ...handledErrors] = lines.slice(expectedAssetLines.length);
  expect(csv).toBe(`csv lines ${expectedAssetLines.length + 1}`);
  expect(Number(/^pdf bytes (\d+)$/.exec(pdf!)?.[1])).toBeGreaterThan(2000);
  // Python prints `True`, TypeScript `true`.
  expect(exempted).toMatch(/^exempted [\w.-]+ [tT]rue$/);
  expect(handledErrors).toEqual(["removed notFound", "404 notFound", "400 invalidRequest query.limit"]);
}

test.skipIf(skipWithout("curl"))("the curl commands list assets, create a token, and download files", async () => {
  const commands = commandsUnder("curl");
  expect(commands).toHaveLength(5);
  const out = await sh(commands.join("\necho\n"));
  const [expiredAssets, createdToken] = out
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  expect(expiredAssets).toMatchObject({ items: expect.any(Array), total: expect.any(Number) });
  expect(createdToken).toMatchObject({ name: "nightly report", token: expect.any(String) });
  expect(readFileSync(path.join(workFolder, "assets.csv"), "utf8").trim().split("\r\n")).toHaveLength(
    expectedAssetLines.length + 1,
  );
  expect(readFileSync(path.join(workFolder, "violations.pdf"), "latin1")).toMatch(/^%PDF-/);
});

test("each command of the page is run by these tests, or is marked ☁ because it needs Azure", () => {
  const headings = ["curl", "az rest", "TypeScript", "Python"];
  expect(headings.flatMap(blocksUnder)).toEqual(blocks.filter(({ language }) => language === "sh"));
  const azureCommands = commandsUnder("az rest");
  expect(azureCommands.filter((command) => !/^az rest --resource api:\/\/\S+ .*# ☁$/.test(command))).toEqual([]);
});

test("the TypeScript client compiles strictly, and lists, exports, exempts and handles errors", async () => {
  const [install, generate, ...more] = commandsUnder("TypeScript");
  expect(more).toEqual([]);
  const { dependencies, devDependencies } = JSON.parse(
    readFileSync(path.join(root, "functions/web/package.json"), "utf8"),
  );
  expect(install).toBe(`npm install --save-exact openapi-fetch@${dependencies["openapi-fetch"]}`);
  const versioned = `npx openapi-typescript@${devDependencies["openapi-typescript"]} `;
  expect(generate!.startsWith(versioned)).toBe(true);
  await sh(generate!.replace(versioned, "openapi-typescript "));
  const [strict] = [...page.matchAll(/^It compiles with (.*)\.$/gm)].map(([, options]) => options!.match(/\w+(?=`)/g)!);
  expect(strict).toContain("strict");
  const compilerOptions = {
    ...Object.fromEntries(strict!.map((option) => [option, true])),
    noEmit: true,
    module: "nodenext",
    target: "es2023",
    types: ["node"],
    allowImportingTsExtensions: true,
  };
  writeFileSync(path.join(workFolder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["client.ts"] }));
  await run("tsc", ["-p", "."]);
  expectProgramOutput(await run(process.execPath, ["client.ts"]), "null");
});

test.skipIf(skipWithout("python"))(
  "the Python client has every operation, and lists, exports, exempts and handles errors",
  async () => {
    const environment = { PYTHONPATH: pythonPackages() };
    const [install, generate, ...more] = commandsUnder("Python");
    expect(more).toEqual([]);
    const [, pinned] = /^(openapi-python-client==\S+)/m.exec(
      readFileSync(path.join(root, "test/clients/requirements.txt"), "utf8"),
    )!;
    expect(install).toBe(`python3 -m pip install ${pinned}`);
    // Without the formatter of the generated code, which is not installed here.
    const config = blocks.find(({ file }) => file === "client.yaml")!.text;
    writeFileSync(path.join(workFolder, "client.yaml"), `${config}post_hooks: []\n`);
    const output = await sh(
      generate!.replace("openapi-python-client", "python3 -m openapi_python_client"),
      environment,
    );
    // The generator warns of operations that it does not support and omits them.
    expect(output.trim()).toBe("Generating lifecycle");
    expectProgramOutput(await run("python3", ["client.py"], environment), "None");
  },
);
