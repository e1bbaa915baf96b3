import { execFile } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { licence } from "../../../test/support/licence.ts";
import { ADMIN, Service } from "../../../test/support/service.ts";
import { caseRunner, type Part } from "../part.ts";
import { pythonEnvironment } from "../python.ts";

// Schemathesis generates requests from /openapi.json, valid and invalid ones, and compares each answer with the document.

/** Maximum number of requests per operation in the phase `fuzzing`. The schema decides the number in the other two phases. */
const MAX_EXAMPLES = "8";

/** Maximum length of the reason of a failure, in characters. */
const MAX_REASON_LENGTH = 200;

/** Each check that Schemathesis makes of an answer, as a case of its own. */
const CHECKS = {
  not_a_server_error: "no answer is a server error (5xx)",
  status_code_conformance: "each status is documented",
  content_type_conformance: "each media type is documented",
  response_headers_conformance: "the headers of each answer match the document",
  response_schema_conformance: "the body of each answer matches its schema",
  ignored_auth: "each operation rejects requests without credentials",
};

/**
 * Operations that end the session of the run, or change the service's requirements: sign-ins and sign-outs, own password and
 * second factor, and the settings. The check of all permissions takes minutes.
 */
const LEFT_OUT = "^/auth/(?!tokens|users$)|^/api/settings|^/system/permissions/check|^/docs|^/redoc|^/page";

export const part: Part = {
  name: "schemathesis",
  description: "requests that Schemathesis generates from /openapi.json get documented answers",
  programs: ["schemathesis"],
  needs: ["python"],
  limits: [
    "Operations below `/auth` other than users and API tokens, the settings and the permission check are left out: they end the run's session, change the service's requirements, or take minutes.",
    "Two checks are off. `positive_data_acceptance`: a body can match its schema and still be rejected, such as an end before its start, or an asset that does not exist. `negative_data_rejection`: the service accepts both spellings of member names and ignores unknown headers.",
  ],
  async *run() {
    const runCase = caseRunner("schemathesis");
    const service = await Service.start({ company: "small", env: { LICENSE_KEY: await licence() } });
    try {
      await service.scan();
      const { body: document } = await service.call("GET", "/openapi.json");
      const run = await runSchemathesis(service.url, await service.signIn(ADMIN));
      const files = run.failures
        .get("content_type_conformance")
        ?.filter((failure) => !isOtherMediaType(failure, document));
      if (files?.length === 0) run.failures.delete("content_type_conformance");
      yield await runCase(
        "requests were sent to every operation",
        /^\d+ operations, at least 1,000 requests$/,
        async () =>
          run.requests >= 1_000 ? `${run.operations} operations, at least 1,000 requests` : `${run.requests} requests`,
      );
      for (const [check, name] of Object.entries(CHECKS))
        yield await runCase(name, "none fails", async () => run.failures.get(check)?.join("; ") ?? "none fails");
    } finally {
      await service.stop();
    }
  },
};

/**
 * Returns whether a failure is about a file that a query parameter requests instead of JSON. The document names the file's media
 * type in the extension `x-other-media-types`, because generated clients support one type for each response.
 */
function isOtherMediaType(failure: string, document: { paths: Record<string, Record<string, Operation>> }): boolean {
  const [, method = "", where = "", type = ""] = /^(\w+) (\S+): .*Received: ([^;\s]+)/.exec(failure) ?? [];
  const { responses = {} } = document.paths[where]?.[method.toLowerCase()] ?? {};
  return responses["200"]?.["x-other-media-types"]?.some((other) => other.startsWith(type)) ?? false;
}

/** The members of an operation in the OpenAPI document that this file reads. */
interface Operation {
  responses?: Record<string, { "x-other-media-types"?: string[] }>;
}

interface Run {
  operations: number;
  requests: number;
  /** By check: the operations for which it failed, with the reason, each once. */
  failures: Map<string, string[]>;
}

/** The members of a scenario in the report that this file reads. A scenario has the requests of one operation in one phase. */
interface Scenario {
  label?: string;
  interactions?: Record<string, unknown>;
  checks?: Record<string, { name: string; status: string; failure_info?: { failure?: { message?: string } } }[]>;
}

/**
 * Runs Schemathesis as the administrator with this token.
 * @throws {Error} with the program's output if it wrote no report
 */
async function runSchemathesis(url: string, token: string): Promise<Run> {
  const folder = mkdtempSync(path.join(tmpdir(), "schemathesis-"));
  const report = path.join(folder, "report.ndjson");
  const options = [
    ["run", `${url}/openapi.json`, "--url", url, "--header", `Authorization: Bearer ${token}`],
    ["--phases", "examples,coverage,fuzzing", "--mode", "all", "--max-examples", MAX_EXAMPLES, "--no-shrink"],
    // Every run sends the same requests. A seed is not used then.
    ["--generation-deterministic", "--generation-with-security-parameters", "false"],
    ["--checks", Object.keys(CHECKS).join(","), "--exclude-path-regex", LEFT_OUT],
    ["--continue-on-failure", "--warnings", "off", "--request-timeout", "60", "--suppress-health-check", "all"],
    ["--report-ndjson-path", report, "--no-color"],
  ];
  const output = await command(options.flat());
  try {
    if (!existsSync(report)) throw new Error(`Schemathesis wrote no report: ${output.slice(-400)}`);
    return await summary(report);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Returns the figures of a report, which has one JSON event per line. Read as a stream: it can exceed the limit of a string. */
async function summary(report: string): Promise<Run> {
  const operations = new Set<string>();
  const failures = new Map<string, Set<string>>();
  let requests = 0;
  for await (const line of createInterface({ input: createReadStream(report) })) {
    const { ScenarioFinished: event } = JSON.parse(line) as { ScenarioFinished?: { recorder?: Scenario } };
    const { label = "", interactions = {}, checks = {} } = event?.recorder ?? {};
    if (event) operations.add(label);
    requests += Object.keys(interactions).length;
    for (const { name, status, failure_info: info } of Object.values(checks).flat()) {
      if (status !== "failure") continue;
      const reasons = failures.get(name) ?? new Set();
      const reason = (info?.failure?.message ?? "").split("\n").filter(Boolean).slice(0, 2).join(" ");
      failures.set(name, reasons.add(`${label}: ${reason.slice(0, MAX_REASON_LENGTH)}`));
    }
  }
  return {
    operations: operations.size,
    requests,
    failures: new Map([...failures].map(([name, all]) => [name, [...all]])),
  };
}

/** Returns what Schemathesis prints. It exits with 1 if a check fails. */
const command = (args: string[]): Promise<string> =>
  new Promise((resolve) => {
    const program = path.join(pythonEnvironment(), "schemathesis");
    execFile(program, args, { maxBuffer: 50_000_000, cwd: tmpdir() }, (_, out, err) => resolve(out + err));
  });
