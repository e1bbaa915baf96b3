import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import type { BuiltApp } from "../../infra/build/build.ts";
import { runHost } from "../host/run-host.ts";
import { TEST_APP } from "../support/test-app.ts";

/** What stands before every endpoint, and what `/health` is declared with. */
const NEEDED =
  /^(?:functions\/(?:entry|functions|health|kit|log|main|register|system)\.ts|shared\/(?:[a-z]+\.ts|(?:config|http)\/.+|messages\/api\.ts))$/;

test("a cold call to /health loads no room that it does not need", async () => {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const chunks = new Map(Object.entries(metafile.outputs).map(([file, output]) => [path.basename(file), output]));
  const host = await runHost({
    app: TEST_APP,
    env: {
      // Nobody asks it.
      AzureWebJobsStorage: "UseDevelopmentStorage=true",
      JWT_SIGNING_KEYS: `test:${Buffer.alloc(32).toString("base64")}`,
    },
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
