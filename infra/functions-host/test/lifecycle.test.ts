import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { freePort, type RunningHost, runHost, runUntilExit, startLoadingHost } from "./run-host.ts";

// Tests how the local Functions host loads an app, stops, and applies its command-line options. Each test starts host
// processes.

let host: RunningHost | undefined;
afterEach(async () => {
  await host?.stop("SIGKILL");
  host = undefined;
});

/** Creates a folder with the files of an app, and returns its path. Adds a minimal host.json if `files` has none. */
async function createApp(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "host-app-"));
  for (const [name, content] of Object.entries({ "host.json": '{"version":"2.0"}', ...files })) {
    await mkdir(join(folder, name, ".."), { recursive: true });
    await writeFile(join(folder, name), content);
  }
  return folder;
}

/**
 * JavaScript that starts each test app. It defines `register(name)`, which registers an HTTP function that returns the
 * environment variable GREETING. It uses the worker's core module directly, because these apps have no node_modules.
 */
const REGISTER = `
  const core = require("@azure/functions-core");
  const trigger = { type: "httpTrigger", direction: "in", authLevel: "anonymous", methods: ["GET"] };
  core.setProgrammingModel({
    getInvocationModel: () => ({
      getArguments: async () => ({ context: {}, inputs: [] }),
      invokeFunction: async (context, inputs, callback) => callback(),
      getResponse: async (context, text) => ({
        returnValue: { http: { statusCode: "200", body: { bytes: Buffer.from(text) } } },
      }),
    }),
  });
  const register = (name) => core.registerFunction({ name, bindings: { req: trigger } }, () => String(process.env.GREETING));
`;

describe("an app is loaded as in the worker", () => {
  it("from every CommonJS file that the glob in main matches, with its local settings", async () => {
    const app = await createApp({
      "package.json": '{"main":"functions/*.js"}',
      "functions/a.js": `${REGISTER} register("a");`,
      "functions/b.js": `${REGISTER} register("b");`,
      "local.settings.json": '{"Values":{"GREETING":"from the file"}}',
    });
    host = await runHost({ app });
    expect(host.functions.map(({ name }) => name)).toEqual(["a", "b"]);
    expect(await (await fetch(`${host.url}/api/b`)).text()).toBe("from the file");
  });

  it("from an ES module that loads the core through createRequire, as a bundle does", async () => {
    const app = await createApp({
      "package.json": '{"main":"main.mjs"}',
      "main.mjs": `import { createRequire } from "node:module";
        const require = createRequire(import.meta.url); ${REGISTER} register("m");`,
    });
    host = await runHost({ app, env: { GREETING: "hello" } });
    expect(await (await fetch(`${host.url}/api/m`)).text()).toBe("hello");
  });

  it.each([
    [
      "its code throws",
      { "package.json": '{"main":"x.js"}', "x.js": 'throw new Error("bad setting X")' },
      "bad setting X",
    ],
    [
      "two functions have the same name",
      { "package.json": '{"main":"x.js"}', "x.js": `${REGISTER} register("a"); register("a");` },
      "already been registered",
    ],
    ["main matches no file", { "package.json": '{"main":"dist/*.js"}' }, "zero files"],
    ["it has no functions", { "package.json": '{"main":"x.js"}', "x.js": "" }, "no functions found"],
    ["host.json is not JSON", { "package.json": '{"main":"x.js"}', "host.json": "{" }, "host.json is not JSON"],
  ])("or the host exits with the reason if %s", async (_, files, reason) => {
    const { code, output } = await runUntilExit(await createApp(files as unknown as Record<string, string>));
    expect(code).toBe(1);
    expect(output).toContain(reason);
  });

  it("and cannot register a function after startup", async () => {
    const app = await createApp({
      "package.json": '{"main":"x.js"}',
      "x.js": `${REGISTER} core.registerFunction({ name: "late", bindings: { req: trigger } }, () => {
        try { register("more"); } catch (error) { return error.message; }
      });`,
    });
    host = await runHost({ app });
    expect(await (await fetch(`${host.url}/api/late`)).text()).toContain("only be registered during app startup");
  });
});

describe("the host stops", () => {
  it("with exit code 0 after it answered the running request and ran the appTerminate hooks", async () => {
    host = await runHost();
    const answer = fetch(`${host.url}/slow?ms=300`);
    await host.waitForLine((line) => line.includes("Executing 'Functions.slow'"));
    const exitCode = host.stop();
    expect(await (await answer).text()).toBe("slow");
    expect(await exitCode).toBe(0);
    expect(await host.waitForReports("appTerminate", 1)).toHaveLength(1);
    await expect(fetch(`${host.url}/plain`)).rejects.toThrow();
  });

  it("immediately on a second signal", async () => {
    host = await runHost();
    const answer = fetch(`${host.url}/slow?ms=60000`).catch(() => "cut off");
    await host.waitForLine((line) => line.includes("Executing 'Functions.slow'"));
    const exitCode = host.stop();
    await host.waitForLine((line) => line.includes("Stopping"));
    await host.stop("SIGINT");
    expect(await exitCode).toBe(1);
    expect(await answer).toBe("cut off");
  });

  it("without waiting for listeners that have not started", async () => {
    // Queue and timer listeners would start after 600 seconds.
    host = await runHost({ args: ["--listeners-after", "600"] });
    expect(await host.stop()).toBe(0);
    // Queue listeners would log that they find no storage account.
    expect(host.lines.filter((line) => /the setting .* is missing|still running/.test(line))).toEqual([]);
  });

  it("when it is killed, and starts again with the same data folder", async () => {
    const data = await mkdtemp(join(tmpdir(), "host-data-"));
    host = await runHost({ args: ["--data", data] });
    await host.stop("SIGKILL");
    host = await runHost({ args: ["--data", data] });
    expect((await fetch(`${host.url}/plain`)).status).toBe(200);
  });

  it("with exit code 1 when the app throws outside of an invocation", async () => {
    const app = await createApp({
      "package.json": '{"main":"x.js"}',
      "x.js": `${REGISTER} register("a"); setTimeout(() => Promise.reject(new Error("unhandled rejection")), 200);`,
    });
    const { code, output } = await runUntilExit(app);
    expect(code).toBe(1);
    expect(output).toContain("unhandled rejection");
  });
});

it("returns 503 while the app is loading", async () => {
  const port = await freePort();
  const app = await createApp({
    "package.json": '{"main":"main.mjs"}',
    "main.mjs": "console.log('loading'); await new Promise((resolve) => setTimeout(resolve, 60000));",
  });
  const loading = startLoadingHost(app, port);
  await loading.waitForLine((line) => line === "loading");
  const answer = await fetch(`http://127.0.0.1:${port}/`);
  expect(answer.status).toBe(503);
  expect(await answer.text()).toBe("Function host is not running.");
  loading.kill();
});

it("aborts an invocation that exceeds functionTimeout", async () => {
  host = await runHost({ env: { AzureFunctionsJobHost__functionTimeout: "00:00:00.3" } });
  expect((await fetch(`${host.url}/slow?ms=60000`)).status).toBe(500);
  await host.waitForLine((line) => line.includes("Timeout value of 0.3 s was exceeded"));
});

it("has no home page when AzureWebJobsDisableHomepage is true", async () => {
  host = await runHost({ env: { AzureWebJobsDisableHomepage: "true" } });
  expect((await fetch(host.url)).status).toBe(204);
});

describe("the command-line option", () => {
  it("--log-file with --quiet writes only warnings and errors to the file", async () => {
    const file = join(await mkdtemp(join(tmpdir(), "host-log-")), "host.log");
    host = await runHost({ args: ["--quiet", "--log-file", file] });
    await fetch(`${host.url}/plain`);
    await fetch(`${host.url}/throws`);
    await host.stop();
    const lines = (await readFile(file, "utf8")).trimEnd().split("\n");
    for (const line of lines)
      expect(line).toMatch(/^\[\d{4}-[^\]]+Z\] \[(Warning|Error)\] \[(Host|Function)[^\]]*\] ./);
    expect(lines.some((line) => line.includes("[Error] [Function.throws]") && line.includes("thrown on purpose"))).toBe(
      true,
    );
    expect(host.lines.some((line) => line.startsWith("["))).toBe(false);
  });

  it("--inspect-modules adds a route that lists the modules that the app has loaded so far", async () => {
    host = await runHost({ args: ["--inspect-modules"] });
    const { url } = host;
    const getDiagnostics = async () =>
      (await (await fetch(`${url}/__host/modules`)).json()) as { modules: string[]; memory: { rss: number } };
    const loadedFileNames = async () => (await getDiagnostics()).modules.map((module) => module.split("/").at(-1));
    expect(await loadedFileNames()).toEqual(["http.ts", "work.ts"]);
    await fetch(`${url}/lazy`);
    expect(await loadedFileNames()).toContain("lazy.ts");
    expect((await getDiagnostics()).memory.rss).toBeGreaterThan(0);
  });
});
