import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { runHost } from "functions-host/test/run-host.ts";
import { expect, onTestFinished, test } from "vitest";
import type { BuiltApp } from "../../infra/build/build.ts";
import { TEST_APP } from "../support/test-app.ts";

/*
 * A cold start is the first call to a new process. Its duration depends on the code that the call loads. So the build puts each
 * area into a file of its own, and these tests check which source files a first call loads.
 */

/** Source files that `/health` may load: those of every first call, and the declaration of `/health`. */
const HEALTH_FILES =
  /^(?:functions\/(?:built-index|built-version|entry|functions|declare|health|log|main|register|system)\.ts|shared\/platform\/(?:[a-z-]+\.ts|(?:config|http)\/.+|azure\/api\.ts)|shared\/messages\/api\.ts)$/;

/** Files of functions/ that an unknown path may load: the services, and the area of the catch-all function. */
const UNKNOWN_PATH_FILES =
  /^functions\/(?:services\/[\w-]+|built-index|catch-all|declare|entry|functions|gate|health|log|main|memory|page|register|services|storage-connection)\.ts$/;

/** Entry points that a call of the area discovery loads, for example a list of assets. */
const DISCOVERY_ENTRY_POINTS = /^functions\/(?:services|discovery)\.ts$/;

/** The schemas of an area's requests and responses, for example `shared/inventory/api.ts`. */
const SCHEMA_FILES = /^shared\/(?:platform\/)?[^/]+\/(?:[a-z]+-)*api\.ts$/;

const ENVIRONMENT = {
  // No request is sent to this address.
  AzureWebJobsStorage: "UseDevelopmentStorage=true",
  RATE_LIMIT_PER_MINUTE: "0",
  RATE_LIMIT_PER_HOUR: "0",
  JWT_SIGNING_KEYS: `test:${Buffer.alloc(32).toString("base64")}`,
};

test("a cold call to /health loads no module that it does not need", async () => {
  const { status, sourceFiles } = await callNewProcess("/health");
  expect(status).toBe(200);
  expect(sourceFiles).toContain("functions/system.ts");
  expect(sourceFiles.filter((file) => !HEALTH_FILES.test(file))).toEqual([]);
});

test("a cold call to an unknown path loads only the declarations of its own area", async () => {
  const { status, sourceFiles } = await callNewProcess("/nothing/here");
  expect(status).toBe(404);
  expect(sourceFiles).toContain("functions/catch-all.ts");
  expect(sourceFiles.filter((file) => file.startsWith("functions/") && !UNKNOWN_PATH_FILES.test(file))).toEqual([]);
});

test("the area discovery loads fewer than 45 files, without the schemas of unrelated areas", () => {
  const { metafile } = JSON.parse(readFileSync(path.join(TEST_APP, "built.json"), "utf8")) as BuiltApp;
  const loadedOutputs = new Set(
    Object.entries(metafile.outputs)
      .filter(([, { entryPoint }]) => DISCOVERY_ENTRY_POINTS.test(entryPoint ?? ""))
      .map(([file]) => file),
  );
  expect(loadedOutputs.size).toBe(2);
  // Adds the files that these files import, also indirectly: the loop visits the files that it adds.
  for (const file of loadedOutputs)
    for (const { path, kind } of metafile.outputs[file]?.imports ?? [])
      if (kind === "import-statement" && metafile.outputs[path] !== undefined) loadedOutputs.add(path);
  expect(loadedOutputs.size).toBeLessThan(45);
  const sourceFiles = [...loadedOutputs].flatMap((file) => Object.keys(metafile.outputs[file]!.inputs));
  expect(sourceFiles).toContain("shared/access/views.ts");
  const areasWithSchemas = sourceFiles.filter((file) => SCHEMA_FILES.test(file)).map((file) => path.dirname(file));
  // The details of an asset name the endpoints that serve a certificate, so their schema is one of shared/certificates.
  expect([...new Set(areasWithSchemas)].sort()).toEqual([
    "shared/certificates",
    "shared/discovery",
    "shared/inventory",
  ]);
});

/** Starts a process, calls it once, and returns the answer's status and the project's source files that the process loaded. */
async function callNewProcess(address: string): Promise<{ status: number; sourceFiles: string[] }> {
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
    // A module is a file of the build (chunk). Its inputs are source files. Some of them contribute no code.
    const loadedFiles = modules.flatMap((module) => {
      const { inputs } = chunks.get(path.basename(module))!;
      return Object.keys(inputs).filter((file) => inputs[file]!.bytesInOutput > 0);
    });
    return { status, sourceFiles: loadedFiles.filter((file) => /^(?:functions|shared)\//.test(file)) };
  } finally {
    await host.stop("SIGKILL");
  }
}

test("a call whose file fails to load is a 500, and the next call loads the file again", async () => {
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
