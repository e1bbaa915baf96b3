/** The command `npm run doctor`: calls everything that the service calls, and prints the missing permissions. See HELP. */

import * as z from "zod";
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";
import { PermissionsCheckView, permissionsCheckView } from "../../shared/doctor/api.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { ConfigError, loadConfig } from "../../shared/platform/config/config.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { isUnclear, SigningKeysMissing } from "../../shared/platform/storage/tables.ts";

const HELP = `npm run doctor -- [--url URL] [--all] [--json]

Checks the permissions of the service that \`npm start\` runs, of the deployment that the environment variables configure, or of
a deployed service. Makes each outgoing call once, reads only, and takes up to two minutes. docs/doctor.md explains the result.

  --url URL  checks the service at this address instead, with the token of an administrator in SERVICE_TOKEN
  --all      also prints the calls that work or are off
  --json     prints the answer of POST /system/permissions/check

Exits with 1 if something that is needed is missing or does not answer.`;

type Check = z.infer<typeof PermissionsCheckView>;

async function checkHere(): Promise<Check> {
  const { createServices } = await import("../services.ts");
  const { doctor, randomness, clock } = createServices(loadConfig(process.env));
  return permissionsCheckView(await doctor.check({ actor: "system", requestId: randomness.ulid(clock.now()) }));
}

/** Time limit of the request: the platform ends every HTTP request after 230 seconds. */
const ANSWER_MS = 230_000;

const LOCAL_HOSTS = new Set(["localhost", "127.0.0.1", "[::1]"]);

async function checkAt(address: string): Promise<Check> {
  const url = URL.canParse(address) ? new URL("system/permissions/check", address.replace(/\/*$/, "/")) : undefined;
  if (!url) return exitWithUsageError(`--url: ${address} is not an address`);
  if (url.protocol !== "https:" && !LOCAL_HOSTS.has(url.hostname))
    return exitWithUsageError(`--url: ${address} must start with https, because the request has a token`);
  const token = process.env.SERVICE_TOKEN;
  if (!token) return exitWithUsageError("SERVICE_TOKEN is not set");
  const answer = await fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    redirect: "error",
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  const text = await answer.text();
  if (answer.ok) return PermissionsCheckView.parse(JSON.parse(text));
  const problem = z.object({ title: z.string(), detail: z.string().optional() }).safeParse(parsed(text)).data;
  throw new Problem("unavailable", `${url.host} answered ${answer.status}: ${problem?.detail ?? problem?.title ?? ""}`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // For example the HTML page of a proxy. The status says enough.
  }
}

/** Outcomes that are printed only with --all. */
const QUIET = new Set<string>(["works", "off"]);

const NAMES: Record<Check["calls"][number]["outcome"], string> = {
  works: "works",
  off: "off",
  notProven: "not proven",
  answeredWithBlanks: "blanks",
  permissionMissing: "permission missing",
  unreachable: "unreachable",
  failed: "failed",
};

async function print({ ok, sample, calls }: Check, all: boolean): Promise<void> {
  const { printTable } = await import("../../infra/local/table.ts");
  const shown = calls.filter(({ outcome }) => all || !QUIET.has(outcome));
  const rows = shown.map(({ id, outcome, optional, works, checked, feature }) => [
    id,
    NAMES[outcome] + (optional && !QUIET.has(outcome) ? " (optional)" : ""),
    `${works} of ${checked}`,
    feature,
  ]);
  if (rows.length > 0) printTable([["call", "result", "works for", "feature"], ...rows]);
  for (const { id, permissions, findings, documentation } of shown) {
    const shownFindings = findings.filter(({ outcome }) => !QUIET.has(outcome));
    if (shownFindings.length === 0) continue;
    console.log(`\n${id}${permissions.length > 0 ? ` needs ${permissions.join(", ")}` : ""} (docs/${documentation})`);
    for (const { resource, detail, remedy, command } of shownFindings) {
      console.log(`  ${resource}: ${[detail, remedy].filter(Boolean).join(" ")}`);
      if (command) console.log(`    ${command}`);
    }
  }
  const count = (outcome: string) => calls.filter((call) => call.outcome === outcome).length;
  const { subscriptions, vaults } = sample;
  console.log(
    `\n${ok ? "Everything that is needed works" : "Something that is needed is missing"}: ${count("works")} calls work, ${count("off")} are off, ${count("notProven")} could not be proven. Checked ${subscriptions.checked} of ${subscriptions.total} subscriptions and ${vaults.checked} of their ${vaults.total} vaults.`,
  );
}

try {
  const { values } = commandLine(HELP, {
    options: {
      url: { type: "string" },
      all: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
    },
  });
  const check = values.url === undefined ? await checkHere() : await checkAt(values.url);
  if (values.json) console.log(JSON.stringify(check, null, 2));
  else await print(check, values.all);
  process.exitCode = check.ok ? 0 : 1;
} catch (error) {
  const expected =
    error instanceof Problem ||
    error instanceof ConfigError ||
    error instanceof SigningKeysMissing ||
    error instanceof TypeError ||
    (error instanceof Error && (isUnclear(error) || error.name === "TimeoutError"));
  if (error instanceof CloudFailure) console.error(`${error.message} ${error.remedy}`);
  else if (expected) console.error((error as Error).message);
  else throw error;
  process.exitCode = 1;
}
