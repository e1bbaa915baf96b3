// The SARIF export of violations, and the gate that fails a pipeline: its script, as the GitHub Action and the steps for Azure
// Pipelines run it, against the running service.
import { execFile } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { ADMIN, Service } from "../support/service.ts";

const GATE = path.resolve(import.meta.dirname, "../../infra/gate");
const SCRIPT = path.join(GATE, "gate.mjs");

let service: Service;
let folder: string;
let token: string;
beforeAll(async () => {
  service = await Service.start({ company: "small" });
  await service.scan();
  // One sign-in for all tests: the service limits the sign-ins of a minute.
  token = await service.signIn(ADMIN);
  folder = mkdtempSync(path.join(os.tmpdir(), "gate-"));
});
afterAll(() => service?.stop());

// biome-ignore lint/suspicious/noExplicitAny: the tests know the shape of the documents.
type Any = any;
const readSarif = async (query = ""): Promise<Any> =>
  JSON.parse((await service.admin("GET", `/compliance/violations/sarif${query}`)).text);
const readViolations = async (query = ""): Promise<Any[]> =>
  (await service.admin("GET", `/compliance/violations?limit=1000${query}`)).body.items;

describe("the SARIF export", () => {
  test("is valid by the published schema, which rejects an unknown level", async () => {
    const file = path.resolve(import.meta.dirname, "../fixtures/sarif-2.1.0.json");
    // The schema is of an earlier draft, has a pattern that is only valid without the flag `u`, and an ID that nothing reads.
    const { $schema: _, $id: __, id: ___, ...schema } = JSON.parse(readFileSync(file, "utf8"));
    const ajv = new Ajv({ strict: false, allErrors: true, unicodeRegExp: false });
    addFormats.default(ajv);
    const validate = ajv.compile(schema);
    const log = await readSarif();
    validate(log);
    expect(validate.errors).toBeNull();
    const wrong = structuredClone(log);
    wrong.runs[0].results[0].level = "fatal";
    expect(validate(wrong)).toBe(false);
  });

  test("has a result for each violation, and a rule for each of their checks", async () => {
    const violations = await readViolations();
    const { version, runs } = await readSarif();
    const [{ tool, results }] = runs;
    expect([version, runs.length, violations.length > 0]).toEqual(["2.1.0", 1, true]);
    expect(results.map((result: Any) => result.partialFingerprints["violation/v1"])).toEqual(
      violations.map(({ id }) => id),
    );
    const { rules } = tool.driver;
    expect(rules.map(({ id }: Any) => id).sort()).toEqual(
      [...new Set(violations.map(({ checkId }) => checkId))].sort(),
    );
    for (const { ruleId, ruleIndex } of results) expect(rules[ruleIndex].id).toBe(ruleId);
    for (const { locations } of results) {
      const [{ physicalLocation, logicalLocations }] = locations;
      expect(physicalLocation.artifactLocation.uri).toMatch(/^[\w.~%!'()*-]+(\/[\w.~%!'()*-]+)*$/);
      expect(logicalLocations[0].fullyQualifiedName).not.toBe("");
    }
    const levels = new Map(results.map((result: Any) => [result.properties.severity, result.level]));
    expect(Object.fromEntries(levels)).toMatchObject({
      critical: "error",
      high: "error",
      medium: "warning",
      low: "note",
    });
  });

  test("has the filters of the list, and a suppression for an exempted violation", async () => {
    const [critical] = await readViolations("&severity=critical");
    const exemption = {
      checkId: critical.checkId,
      scope: { type: "asset", id: critical.resourceId },
      category: "waiver",
      reason: "Accepted until the migration is over.",
      until: new Date(Date.now() + 86_400_000).toISOString(),
    };
    const { status, body } = await service.admin("POST", "/compliance/exemptions", exemption);
    expect(status).toBe(201);
    const [{ results }] = (await readSarif("?severity=critical")).runs;
    const suppressed = results.filter((result: Any) => result.suppressions);
    expect(suppressed.map((result: Any) => result.partialFingerprints["violation/v1"])).toEqual([critical.id]);
    expect(suppressed[0].suppressions[0]).toMatchObject({ kind: "external", status: "accepted" });
    expect(suppressed[0].suppressions[0].justification).toContain(body.id);
    const [{ results: open }] = (await readSarif("?severity=critical&exempted=false")).runs;
    expect(open).toHaveLength(results.length - 1);
    expect((await service.admin("DELETE", `/compliance/exemptions/${body.id}`)).status).toBe(200);
  });

  test("without violations is a log with an empty list", async () => {
    const [{ results, tool }] = (await readSarif("?vault=kv-none")).runs;
    expect([results, tool.driver.rules]).toEqual([[], []]);
  });
});

interface Outcome {
  code: number;
  output: string;
}

/** Runs a program with only these variables and those that find programs and the certificates of tests. */
async function run(program: string, args: string[], env: Record<string, string>): Promise<Outcome> {
  const { PATH = "", HOME = "" } = process.env;
  const options = { env: { PATH, HOME, ...env }, timeout: 60_000 };
  try {
    const { stdout, stderr } = await promisify(execFile)(program, args, options);
    return { code: 0, output: stdout + stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { code, output: stdout + stderr };
  }
}
const runGate = async (env: Record<string, string>): Promise<Outcome> =>
  await run(process.execPath, [SCRIPT], {
    LIFECYCLE_URL: service.url,
    LIFECYCLE_TOKEN: token,
    ...env,
  });

describe("the gate", () => {
  test("fails with violations of the severity or higher, and names them", async () => {
    const critical = await readViolations("&severity=critical");
    const high = await readViolations("&severity=high");
    const { code, output } = await runGate({ GATE_SEVERITY: "high" });
    expect([code, output]).toEqual([
      1,
      expect.stringContaining(`severity high or higher: ${critical.length + high.length}`),
    ]);
    expect(output).toContain(critical[0].resourceId);
    expect((await runGate({ GATE_SEVERITY: "critical" })).output).toContain(`critical or higher: ${critical.length}`);
  });

  test("passes if nothing matches the vault or the owner", async () => {
    expect(
      (await runGate({ GATE_VAULT: "kv-shop-empty", GATE_SEVERITY: "critical", GATE_DAYS_LEFT: "3000" })).code,
    ).toBe(0);
    expect(
      (await runGate({ GATE_OWNER: "other@acme.example", GATE_SEVERITY: "low", GATE_DAYS_LEFT: "3000" })).code,
    ).toBe(0);
    const ofOwner = await runGate({ GATE_OWNER: "dba@acme.example", GATE_SEVERITY: "none", GATE_DAYS_LEFT: "91" });
    expect([ofOwner.code, ofOwner.output]).toEqual([1, expect.stringContaining("kv-shop-prod.secret.db-password")]);
    expect(ofOwner.output).not.toContain("smtp-password");
  });

  test("fails for assets that expire in fewer days, also without violations", async () => {
    const soon = await runGate({ GATE_SEVERITY: "none", GATE_DAYS_LEFT: "6", GATE_VAULT: "kv-shop-prod" });
    expect([soon.code, soon.output]).toEqual([1, expect.stringContaining("kv-shop-prod.secret.smtp-password")]);
    expect(soon.output).not.toContain("kv-shop-prod.key.ledger");
    const expired = await runGate({ GATE_SEVERITY: "none", GATE_DAYS_LEFT: "0" });
    expect([expired.code, expired.output]).toEqual([1, expect.stringContaining("old-api-key")]);
    expect((await runGate({ GATE_SEVERITY: "none" })).code).toBe(0);
  });

  test("writes a SARIF file and its outputs", async () => {
    const [sarif, outputs] = [path.join(folder, "gate.sarif"), path.join(folder, "outputs")];
    writeFileSync(outputs, "");
    await runGate({ GATE_SARIF: sarif, GITHUB_OUTPUT: outputs, GATE_SEVERITY: "critical", GATE_DAYS_LEFT: "6" });
    const written = JSON.parse(readFileSync(sarif, "utf8"));
    expect(written).toEqual(await readSarif());
    expect(readFileSync(outputs, "utf8")).toMatch(/^violations=\d+\nexpiring=\d+\n$/);
  });

  test("ends with 2 if it can't ask, so that no pipeline passes by accident", async () => {
    const outcomes = await Promise.all([
      runGate({ LIFECYCLE_TOKEN: "wrong" }),
      runGate({ LIFECYCLE_URL: "" }),
      runGate({ LIFECYCLE_URL: "http://127.0.0.1:1" }),
      runGate({ LIFECYCLE_URL: "http://lifecycle.acme.example" }),
      runGate({ LIFECYCLE_TOKEN: "" }),
      runGate({ GATE_SEVERITY: "urgent" }),
      runGate({ GATE_DAYS_LEFT: "-1" }),
      runGate({ GATE_SARIF: path.join(folder, "none", "gate.sarif") }),
    ]);
    expect(outcomes.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2, 2, 2, 2]);
    expect(outcomes.map(({ output }) => output).join("")).not.toContain("    at ");
  });

  test("ends with 2 if the service has evaluated nothing, or answers something else, and prints no command of it", async () => {
    let answer = JSON.stringify({ evaluatedAt: null, items: [], nextCursor: null });
    let status = 200;
    const other = createServer((_, response) => response.writeHead(status).end(answer));
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void other.close());
    const ask = () => runGate({ LIFECYCLE_URL: `http://127.0.0.1:${(other.address() as AddressInfo).port}` });
    expect(await ask()).toEqual({ code: 2, output: expect.stringContaining("has not evaluated any vault") });
    answer = "<html>";
    expect((await ask()).code).toBe(2);
    [status, answer] = [400, JSON.stringify({ detail: "bad\n::error::forged" })];
    expect(await ask()).toEqual({ code: 2, output: expect.not.stringContaining("::error::") });
  });
});

describe("signs in without a secret", () => {
  /** Answers as GitHub's issuer of job tokens and as Entra's token endpoint. */
  let issuer: Server;
  let url: string;
  const requests: string[] = [];
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
    const form = new URLSearchParams(await text(request));
    requests.push(`${request.method} ${request.url}`);
    const isJobToken = request.headers.authorization === "Bearer job-token";
    if (request.url?.startsWith("/job-token?") && isJobToken)
      return response.end(JSON.stringify({ value: "github-token" }));
    if (form.get("client_assertion") === "github-token" && form.get("scope") === "api://lifecycle/.default") {
      const token = await service.cloud.control.apiToken({ claims: { roles: ["Lifecycle.User"] } });
      return response.end(JSON.stringify({ access_token: token }));
    }
    return response.writeHead(401).end(JSON.stringify({ error: "invalid_client" }));
  }
  beforeAll(async () => {
    issuer = createServer((request, response) => void answer(request, response));
    await new Promise<void>((resolve) => issuer.listen(0, "127.0.0.1", resolve));
    url = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}`;
  });
  afterAll(() => issuer?.close());

  test("in GitHub: the composite action exchanges the token of the job for one of Entra", async () => {
    const action = parse(readFileSync(path.join(GATE, "action.yml"), "utf8"));
    const [step] = action.runs.steps;
    const given: Record<string, string> = {
      url: service.url,
      "tenant-id": "contoso.example",
      "client-id": "gate",
      resource: "api://lifecycle",
      severity: "critical",
    };
    const inputOf = (text: string) =>
      text.replace(/\$\{\{ inputs\.([\w-]+) \}\}/, (_, name: string) => given[name] ?? action.inputs[name].default);
    const env = Object.fromEntries(Object.entries<string>(step.env).map(([name, text]) => [name, inputOf(text)]));
    const github = {
      GITHUB_ACTION_PATH: GATE,
      GITHUB_ACTIONS: "true",
      ACTIONS_ID_TOKEN_REQUEST_URL: `${url}/job-token?version=2`,
      ACTIONS_ID_TOKEN_REQUEST_TOKEN: "job-token",
      AZURE_AUTHORITY_HOST: url,
    };
    const { code, output } = await run("bash", ["-c", step.run], { ...env, ...github });
    expect([code, output]).toEqual([1, expect.stringContaining("critical or higher")]);
    expect(requests).toEqual([
      "GET /job-token?version=2&audience=api%3A%2F%2FAzureADTokenExchange",
      "POST /contoso.example/oauth2/v2.0/token",
    ]);
    const rejected = await run("bash", ["-c", step.run], {
      ...env,
      ...github,
      ACTIONS_ID_TOKEN_REQUEST_TOKEN: "other",
    });
    expect([rejected.code, rejected.output]).toEqual([2, expect.stringContaining("answered 401: invalid_client")]);
  });

  test("in Azure Pipelines: the steps get a token from the service connection", async () => {
    const template = parse(readFileSync(path.join(GATE, "azure-pipelines.yml"), "utf8"));
    const [step] = template.steps;
    // In place of the Azure CLI: returns a token for the resource that the steps name.
    const az = path.join(folder, "az");
    const entraToken = await service.cloud.control.apiToken({ claims: { roles: ["Lifecycle.User"] } });
    writeFileSync(
      az,
      `#!/bin/sh\n[ "$*" = "account get-access-token --resource api://lifecycle --query accessToken --output tsv" ] && echo '${entraToken}'\n`,
    );
    chmodSync(az, 0o700);
    const env = {
      PATH: `${folder}:${process.env.PATH}`,
      LIFECYCLE_URL: service.url,
      LIFECYCLE_RESOURCE: "api://lifecycle",
      GATE_FOLDER: GATE,
      GATE_SEVERITY: "critical",
    };
    const { code, output } = await run("bash", ["-c", step.inputs.inlineScript], env);
    expect([code, output]).toEqual([1, expect.stringContaining("critical or higher")]);
    const without = await run("bash", ["-c", step.inputs.inlineScript], { ...env, LIFECYCLE_RESOURCE: "api://other" });
    expect(without.code).not.toBe(0);
    const names = Object.keys(step.env).filter((name) => !name.startsWith("${{"));
    expect(names).toEqual(["LIFECYCLE_URL", "LIFECYCLE_RESOURCE", "GATE_FOLDER", "GATE_SEVERITY"]);
  });
});
