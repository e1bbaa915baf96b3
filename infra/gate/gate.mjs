#!/usr/bin/env node
// Fails a pipeline if there are violations or credentials that expire soon. Needs Node.js 20 or later and no packages. HELP
// describes the variables.
import { appendFileSync, writeFileSync } from "node:fs";

const HELP = `node gate.mjs

Reads the violations of the Credential and Secret Lifecycle Service that match the filters, and the assets that expire soon.
Prints them, and exits with 1 if there are any, with 2 if the service can't be asked or has evaluated nothing yet, and with 0 otherwise.

Environment variables that decide which findings fail the gate:
  GATE_SEVERITY       lowest severity that fails: critical, high (default), medium, low, or none
  GATE_DAYS_LEFT      enabled assets that expire in fewer days fail. Without it, expiries don't fail.
  GATE_OWNER          only assets of this owner
  GATE_VAULT          only assets of this vault, and the vault itself
  GATE_SARIF          path of a SARIF file to write, with the violations that match owner and vault

Environment variables of the service and of the sign-in:
  LIFECYCLE_URL       address of the service, such as https://lifecycle.acme.example
  LIFECYCLE_TOKEN     access token. Without it, GitHub's token of the job is exchanged for one, which needs no secret:
  AZURE_TENANT_ID, AZURE_CLIENT_ID   the application with a federated credential for the repository
  LIFECYCLE_RESOURCE  identifier of the API's app registration, such as api://<its application id>
  AZURE_AUTHORITY_HOST  address of Entra, by default https://login.microsoftonline.com`;

const SEVERITIES = ["critical", "high", "medium", "low"];
/** Number of lines that are printed of each list. */
const MAX_LINES = 50;
const RETRIES = 4;
const DAY_MS = 86_400_000;

/** An error of the configuration or of the service, without a finding. */
class GateError extends Error {}

/** Returns a variable. @throws {GateError} if it is missing. */
function required(name) {
  const value = process.env[name];
  if (!value) throw new GateError(`Set ${name}. node gate.mjs --help describes it.`);
  return value;
}

/** Returns an address. Tokens must not be sent in plain text, except to this machine. @throws {GateError} */
function safeAddress(name, text) {
  const { protocol, hostname } = URL.canParse(text) ? new URL(text) : {};
  if (protocol !== "https:" && !(protocol === "http:" && ["localhost", "127.0.0.1"].includes(hostname)))
    throw new GateError(`${name} must be an https:// address.`);
  return text.replace(/\/+$/, "");
}

/** Sends a request, again if the service asks to wait. @throws {GateError} if the answer is no success. */
async function send(url, options = {}) {
  for (let attempt = 0; ; attempt++) {
    const response = await fetch(url, { redirect: "error", ...options }).catch((error) => {
      throw new GateError(`${new URL(url).host} can't be reached: ${error.cause?.message ?? error.message}`);
    });
    if (response.ok) return response;
    const text = await response.text();
    if ((response.status === 429 || response.status === 503) && attempt < RETRIES) {
      const seconds = Number(response.headers.get("retry-after")) || 2 ** attempt;
      await new Promise((resolve) => setTimeout(resolve, Math.min(60, seconds) * 1000));
      continue;
    }
    // Not the whole text: an answer of Entra can repeat parts of the request.
    const detail = detailOf(text);
    throw new GateError(`${new URL(url).host}${new URL(url).pathname} answered ${response.status}${detail}`);
  }
}

function detailOf(text) {
  try {
    const { detail, title, error } = JSON.parse(text);
    const known = detail ?? title ?? error;
    return typeof known === "string" ? `: ${known}` : "";
  } catch {
    return "";
  }
}

/** Returns an access token for the service: the given one, or one for the job's own identity. */
async function accessToken() {
  const { LIFECYCLE_TOKEN, ACTIONS_ID_TOKEN_REQUEST_URL, ACTIONS_ID_TOKEN_REQUEST_TOKEN } = process.env;
  if (LIFECYCLE_TOKEN) return LIFECYCLE_TOKEN;
  if (!ACTIONS_ID_TOKEN_REQUEST_URL || !ACTIONS_ID_TOKEN_REQUEST_TOKEN)
    throw new GateError("Set LIFECYCLE_TOKEN, or give the job the permission id-token: write.");
  const idTokenUrl = new URL(ACTIONS_ID_TOKEN_REQUEST_URL);
  idTokenUrl.searchParams.set("audience", "api://AzureADTokenExchange");
  const idToken = await send(idTokenUrl, { headers: { Authorization: `Bearer ${ACTIONS_ID_TOKEN_REQUEST_TOKEN}` } });
  const { AZURE_AUTHORITY_HOST } = process.env;
  const authority = safeAddress("AZURE_AUTHORITY_HOST", AZURE_AUTHORITY_HOST || "https://login.microsoftonline.com");
  const answer = await send(`${authority}/${encodeURIComponent(required("AZURE_TENANT_ID"))}/oauth2/v2.0/token`, {
    method: "POST",
    body: new URLSearchParams({
      grant_type: "client_credentials",
      client_id: required("AZURE_CLIENT_ID"),
      client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
      client_assertion: (await idToken.json()).value,
      scope: `${required("LIFECYCLE_RESOURCE")}/.default`,
    }),
  });
  const { access_token: token } = await answer.json();
  // GitHub removes the token from logs.
  if (process.env.GITHUB_ACTIONS) console.log(`::add-mask::${token}`);
  return token;
}

/**
 * Checks that the service has evaluated anything. Otherwise its lists are empty, and the gate would pass without a check.
 *
 * @throws {GateError} before the first evaluation
 */
async function requireEvaluation(get) {
  const { evaluatedAt } = await (await get("/compliance/score")).json();
  if (!evaluatedAt) throw new GateError("The service has not evaluated any vault yet. Start a scan first.");
  console.log(`Newest evaluation: ${inLine(evaluatedAt)}`);
}

/** Returns all items of a list that match. */
async function readList(get, path, query) {
  const items = [];
  for (let cursor; cursor !== null; ) {
    const parameters = new URLSearchParams({ ...query, limit: "1000", ...(cursor && { cursor }) });
    const page = await (await get(`${path}?${parameters}`)).json();
    items.push(...page.items);
    cursor = page.nextCursor ?? null;
  }
  return items;
}

/** Returns all parts of a SARIF export as one log: the runs of all parts. */
async function readSarif(get, query) {
  let next = `/compliance/violations/sarif?${new URLSearchParams(query)}`;
  let log;
  while (next) {
    const response = await get(next);
    const part = await response.json();
    // A category of code scanning has one run, so the results of all parts go into the first one.
    if (log) appendRun(log.runs[0], part.runs[0]);
    else log = part;
    next = /<([^>]+)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
  }
  return log;
}

function appendRun(run, { tool, results }) {
  const { rules } = run.tool.driver;
  for (const rule of tool.driver.rules) if (!rules.some(({ id }) => id === rule.id)) rules.push(rule);
  for (const result of results)
    run.results.push({ ...result, ruleIndex: rules.findIndex(({ id }) => id === result.ruleId) });
}

/** Returns a name without line breaks, and without the start of a command of GitHub (`::`) or Azure Pipelines (`##`). */
const inLine = (text) =>
  String(text)
    .replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ")
    .replaceAll("::", ": :")
    .replaceAll("##", "# #");

function report(title, lines) {
  console.log(`${title}: ${lines.length}`);
  for (const line of lines.slice(0, MAX_LINES)) console.log(`  ${inLine(line)}`);
  if (lines.length > MAX_LINES) console.log(`  … and ${lines.length - MAX_LINES} more`);
}

/** Returns the settings of the gate. @throws {GateError} for a value that is not allowed. */
function readSettings() {
  const { GATE_SEVERITY, GATE_DAYS_LEFT, GATE_OWNER, GATE_VAULT } = process.env;
  const lowest = GATE_SEVERITY || "high";
  if (lowest !== "none" && !SEVERITIES.includes(lowest))
    throw new GateError(`GATE_SEVERITY must be ${SEVERITIES.join(", ")} or none.`);
  if (GATE_DAYS_LEFT && !/^\d{1,5}$/.test(GATE_DAYS_LEFT))
    throw new GateError("GATE_DAYS_LEFT must be a number of days.");
  return {
    severities: lowest === "none" ? [] : SEVERITIES.slice(0, SEVERITIES.indexOf(lowest) + 1),
    daysLeft: GATE_DAYS_LEFT ? Number(GATE_DAYS_LEFT) : undefined,
    filter: { ...(GATE_OWNER && { owner: GATE_OWNER }), ...(GATE_VAULT && { vault: GATE_VAULT }) },
  };
}

async function main() {
  if (process.argv.includes("--help")) {
    console.log(HELP);
    return 0;
  }
  const { severities, daysLeft, filter } = readSettings();
  const service = safeAddress("LIFECYCLE_URL", required("LIFECYCLE_URL"));
  const token = await accessToken();
  const get = (path) =>
    send(service + path, { headers: { Authorization: `Bearer ${token}`, Accept: "application/json" } });

  await requireEvaluation(get);
  const violations = [];
  for (const severity of severities)
    violations.push(...(await readList(get, "/compliance/violations", { ...filter, severity, exempted: "false" })));
  const expiring =
    daysLeft === undefined
      ? []
      : await readList(get, "/api/assets/discovery/assets", {
          ...filter,
          enabled: "true",
          counted: "true",
          expires_before: new Date(Date.now() + daysLeft * DAY_MS).toISOString(),
        });
  const { GATE_SARIF, GITHUB_OUTPUT } = process.env;
  if (GATE_SARIF) writeFileSync(GATE_SARIF, JSON.stringify(await readSarif(get, filter)));

  if (severities.length > 0)
    report(
      `Violations of severity ${severities.at(-1)} or higher`,
      violations.map(
        ({ severity, title, credentialTitle, resourceId }) => `${severity}: ${title}: ${credentialTitle ?? resourceId}`,
      ),
    );
  if (daysLeft !== undefined)
    report(
      `Assets that expire in fewer than ${daysLeft} days`,
      expiring.map(({ id, expiresOn, owner }) => `${expiresOn}: ${id} (owner: ${owner ?? "none"})`),
    );
  if (GITHUB_OUTPUT) appendFileSync(GITHUB_OUTPUT, `violations=${violations.length}\nexpiring=${expiring.length}\n`);
  return violations.length + expiring.length > 0 ? 1 : 0;
}

process.exitCode = await main().catch((error) => {
  // Any other error, such as an answer that is no JSON or a file that can't be written, is no finding either.
  console.error(inLine(error instanceof GateError ? error.message : `The gate failed: ${error.message}`));
  return 2;
});
