import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { runHost } from "functions-host/test/run-host.ts";
import { expect, onTestFinished, test } from "vitest";
import type { BuiltApp } from "../../infra/build/build.ts";
import { TEST_APP } from "../support/test-app.ts";

/** Files that every first call loads, and the declaration of `/health`. */
const NEEDED =
  /^(?:functions\/(?:built-index|entry|functions|declare|health|log|main|register|system)\.ts|shared\/platform\/(?:[a-z-]+\.ts|(?:config|http)\/.+|azure\/api\.ts)|shared\/messages\/api\.ts)$/;

/** Files of functions/ that an unknown path loads: the services and the area of the catch-all function. */
const UNKNOWN_PATH =
  /^functions\/(?:services\/[\w-]+|built-index|catch-all|declare|entry|functions|gate|health|log|main|memory|page|register|services|storage-connection)\.ts$/;

/** Modules of an asset list. */
const AREA = /^functions\/(?:services|discovery)\.ts$/;

/** The schemas of an area's requests and responses. */
const API = /^shared\/(?:platform\/)?[^/]+\/(?:[a-z]+-)*api\.ts$/;

const ENVIRONMENT = {
  // No request is sent to this address.
  AzureWebJobsStorage: "UseDevelopmentStorage=true",
  RATE_LIMIT_PER_MINUTE: "0",
  RATE_LIMIT_PER_HOUR: "0",
  JWT_SIGNING_KEYS: `test:${Buffer.alloc(32).toString("base64")}`,
};

test("a cold call to /health loads no module that it does not need", async () => {
  const { status, own } = await firstCall("/health");
  expect(status).toBe(200);
  expect(own).toContain("functions/system.ts");
  expect(own.filter((file) => !NEEDED.test(file))).toEqual([]);
});

test("a cold call to an unknown path loads only the declarations of its own area", async () => {
  const { status, own } = await firstCall("/nothing/here");
  expect(status).toBe(404);
  expect(own).toContain("functions/catch-all.ts");
  expect(own.filter((file) => file.startsWith("functions/") && !UNKNOWN_PATH.test(file))).toEqual([]);
});

test("the services and one area are few files, without the schemas of other areas", () => {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const outputs = Object.entries(metafile.outputs);
  const needed = new Set(outputs.filter(([, { entryPoint }]) => AREA.test(entryPoint ?? "")).map(([file]) => file));
  expect(needed.size).toBe(2);
  for (const file of needed)
    for (const { path, kind } of metafile.outputs[file]?.imports ?? [])
      if (kind === "import-statement" && metafile.outputs[path] !== undefined) needed.add(path);
  expect(needed.size).toBeLessThan(45);
  const sources = [...needed].flatMap((file) => Object.keys(metafile.outputs[file]!.inputs));
  expect(sources).toContain("shared/access/views.ts");
  const schemas = sources.filter((file) => API.test(file)).map((file) => path.dirname(file));
  expect([...new Set(schemas)].sort()).toEqual(["shared/discovery", "shared/inventory"]);
});

/** Calls a new process once. Returns the answer and the app's files that the process loaded. */
async function firstCall(address: string): Promise<{ status: number; own: string[] }> {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const chunks = new Map(Object.entries(metafile.outputs).map(([file, output]) => [path.basename(file), output]));
  const host = await runHost({
    app: TEST_APP,
    env: ENVIRONMENT,
    args: ["--inspect-modules", "--no-schedules"],
  });
  try {
    const { status } = await fetch(host.url + address);
    const { modules } = (await (await fetch(`${host.url}/__host/modules`)).json()) as { modules: string[] };
    const loaded = modules.flatMap((module) => {
      const { inputs } = chunks.get(path.basename(module))!;
      return Object.keys(inputs).filter((file) => inputs[file]!.bytesInOutput > 0);
    });
    return { status, own: loaded.filter((file) => /^(?:functions|shared)\//.test(file)) };
  } finally {
    await host.stop("SIGKILL");
  }
}

test("a file that fails to load is answered with a problem, and loaded by the next call", async () => {
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
    const files = ["functions/catch-all.ts", "functions/services.ts"].map(chunkOf);
    for (const file of files) renameSync(file, `${file}.away`);
    for (const file of files) {
      const answer = await fetch(host.url, { headers: { "x-request-id": "load-1" } });
      expect(answer.status, file).toBe(500);
      expect(answer.headers.get("content-type")).toBe("application/problem+json");
      expect(answer.headers.get("x-request-id")).toBe("load-1");
      expect(await answer.json()).toMatchObject({ code: "internal", instance: "load-1" });
      renameSync(`${file}.away`, file);
    }
    expect((await fetch(host.url)).status).toBe(200);
  } finally {
    await host.stop("SIGKILL");
  }
});
