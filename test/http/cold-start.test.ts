import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { BuiltApp } from "../../infra/build/build.ts";
import { runHost } from "../host/run-host.ts";
import { TEST_APP } from "../support/test-app.ts";

/** What stands before every endpoint, and what `/health` is declared with. */
const NEEDED =
  /^(?:functions\/(?:entry|functions|health|kit|log|main|register|system)\.ts|shared\/(?:[a-z]+\.ts|(?:config|http)\/.+|messages\/api\.ts))$/;

const ENVIRONMENT = {
  // Nobody asks it.
  AzureWebJobsStorage: "UseDevelopmentStorage=true",
  JWT_SIGNING_KEYS: `test:${Buffer.alloc(32).toString("base64")}`,
};

test("a cold call to /health loads no room that it does not need", async () => {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const chunks = new Map(Object.entries(metafile.outputs).map(([file, output]) => [path.basename(file), output]));
  const host = await runHost({
    app: TEST_APP,
    env: ENVIRONMENT,
    args: ["--inspect-modules", "--no-schedules"],
  });
  try {
    const answer = await fetch(`${host.url}/health`);
    expect(answer.status).toBe(200);
    const { modules } = (await (await fetch(`${host.url}/__host/modules`)).json()) as { modules: string[] };
    const loaded = modules.flatMap((module) => {
      const { inputs } = chunks.get(path.basename(module))!;
      return Object.keys(inputs).filter((file) => inputs[file]!.bytesInOutput > 0);
    });
    const own = loaded.filter((file) => /^(?:functions|shared)\//.test(file));
    expect(own).toContain("functions/system.ts");
    expect(own.filter((file) => !NEEDED.test(file))).toEqual([]);
  } finally {
    await host.stop("SIGKILL");
  }
});

test("a file that could not be loaded once is loaded by the next call", async () => {
  const app = mkdtempSync(path.join(tmpdir(), "app-"));
  onTestFinished(() => rmSync(app, { recursive: true }));
  for (const file of ["dist", "host.json", "package.json"])
    cpSync(path.join(TEST_APP, file), path.join(app, file), { recursive: true });
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const chunkOf = (file: string) => {
    const [output] = Object.entries(metafile.outputs).find(([, { entryPoint }]) => entryPoint === file)!;
    return path.join(app, "dist", path.basename(output));
  };
  const host = await runHost({ app, env: ENVIRONMENT, args: ["--no-schedules"] });
  try {
    const status = async () => (await fetch(host.url)).status;
    const files = ["functions/catch-all.ts", "functions/services.ts"].map(chunkOf);
    for (const file of files) renameSync(file, `${file}.away`);
    for (const file of files) {
      expect(await status(), file).toBe(500);
      renameSync(`${file}.away`, file);
    }
    expect(await status()).toBe(200);
  } finally {
    await host.stop("SIGKILL");
  }
});
