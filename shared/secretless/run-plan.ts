import { createHash } from "node:crypto";
import { Problem } from "../platform/http/problem.ts";
import type { RunConnection, RunCredential } from "../rotation/secretless-run.ts";
import { MAX_FEDERATED_CREDENTIALS, type SecretlessReport, type SecretReport } from "./report.ts";

/** Plans the run for one client secret from the report and the request. Makes no request. */

/** A federated credential that the request names for a consumer. Members that are absent come from the report. */
export interface RequestedReplacement {
  consumer: string;
  issuer?: string | undefined;
  subject?: string | undefined;
  audience?: string | undefined;
}

export interface RunRequest {
  keyId: string;
  idleDays: number;
  replacements: readonly RequestedReplacement[];
  /** Fingerprint of the plan that a person has seen. Absent: any plan. */
  plan?: string | undefined;
}

export interface RunPlan {
  /** Fingerprint. Equal plans have equal fingerprints. */
  plan: string;
  consumers: { id: string; name: string; kind: string }[];
  credentials: Omit<RunCredential, "name" | "isVerified">[];
  connections: RunConnection[];
  /** What a person changes in each consumer, in order. */
  byPerson: { consumer: string; text: string }[];
}

const PLACEHOLDER = /<[^<>]*>/;

/**
 * Returns the plan of a run.
 *
 * @param parseConnection - Returns the project and the ID of a service connection.
 * @throws {Problem} notFound if the application has no such secret; conflict if a consumer keeps it; valueRequired if the report
 * has a placeholder and the request no value; invalidRequest if a value does not fit the report.
 */
export function planRun(
  report: SecretlessReport,
  request: Pick<RunRequest, "keyId" | "replacements">,
  parseConnection: (id: string) => { projectId: string; connectionId: string } | undefined,
): RunPlan {
  const secret = report.secrets.find(({ keyId }) => keyId === request.keyId);
  if (secret === undefined)
    throw new Problem("notFound", `The application ${report.appId} has no client secret ${request.keyId}.`);
  if (secret.verdict !== "possible")
    throw new Problem("conflict", `The secret can't be replaced by this run: ${secret.reason}`);
  const named = new Map(request.replacements.map((one) => [one.consumer, one]));
  for (const { consumer } of request.replacements) {
    if (!secret.consumers.some(({ id, replacement }) => id === consumer && replacement.federatedCredential))
      throw invalid(`replacements: the report proposes no federated credential for the consumer ${consumer}`);
  }
  const credentials: RunPlan["credentials"] = [];
  const connections: RunConnection[] = [];
  for (const { id, name, kind, replacement, refresh } of secret.consumers) {
    const needed = replacement.federatedCredential;
    if (needed === undefined) continue;
    const isConnection = kind === "devopsServiceConnection";
    const automatic = isConnection && refresh === "willBreak";
    if (isConnection) {
      const location = parseConnection(id);
      if (location === undefined) throw new Problem("conflict", `The service connection ${id} can't be found.`);
      connections.push({ consumer: id, name, ...location, automatic, state: "planned" });
    }
    if (automatic) {
      if (named.has(id))
        throw invalid(`replacements: Azure DevOps chooses the issuer and the subject of ${name}; leave it out`);
      const { audience } = needed;
      credentials.push({ issuer: "", subject: "", audience, consumers: [id], state: "byDevops" });
      continue;
    }
    const wanted = named.get(id);
    const issuer = fitting("issuer", wanted?.issuer, needed.issuer, name);
    const subject = fitting("subject", wanted?.subject, needed.subject, name);
    const audience = fitting("audience", wanted?.audience, needed.audience, name);
    const same = credentials.find((one) => one.issuer === issuer && one.subject === subject);
    if (same) same.consumers.push(id);
    else credentials.push({ issuer, subject, audience, consumers: [id], state: "planned" });
  }
  const consumers = secret.consumers.map(({ id, name, kind }) => ({ id, name, kind }));
  const decided = {
    appId: report.appId,
    keyId: secret.keyId,
    consumers: secret.consumers.map(({ id, kind, replacement: { by, mode } }) => ({ id, kind, by, mode })),
    credentials,
    connections,
  };
  return {
    plan: createHash("sha256").update(JSON.stringify(decided)).digest("hex"),
    consumers,
    credentials,
    connections,
    byPerson: secret.consumers.flatMap(({ id, replacement, kind, refresh }) =>
      kind === "devopsServiceConnection" && refresh === "willBreak"
        ? []
        : replacement.steps.flatMap(({ text, command }) =>
            command?.includes("federated-credential create") ? [] : { consumer: id, text },
          ),
    ),
  };
}

/**
 * Returns the value of a federated credential: that of the report, or the given one if it fits the report exactly, apart from the
 * placeholders. Entra compares with upper and lower case, so the values are compared so too.
 */
function fitting(member: string, given: string | undefined, proposed: string, consumer: string): string {
  const hasPlaceholder = PLACEHOLDER.test(proposed);
  if (given === undefined) {
    if (!hasPlaceholder) return proposed;
    throw new Problem(
      "valueRequired",
      `Send the ${member} of ${consumer} in replacements, exactly as the token of the workload has it. The report has ${proposed}.`,
    );
  }
  if (PLACEHOLDER.test(given)) throw invalid(`replacements: the ${member} of ${consumer} is a placeholder`);
  const fixedParts = proposed.split(/<[^<>]*>/).map((part) => part.replace(/[.\\^$+?*()[\]{}|]/g, "\\$&"));
  const fits = new RegExp(`^${fixedParts.join(".+")}$`).test(given);
  if (!fits) throw invalid(`replacements: the ${member} of ${consumer} must be ${proposed}, and it is ${given}`);
  return given;
}

/** @throws {Problem} conflict if the application would have more than the maximum number of federated credentials. */
export function requireRoom(
  existing: readonly { issuer: string; subject: string }[],
  plan: Pick<RunPlan, "credentials">,
) {
  const isNew = ({ issuer, subject, state }: RunPlan["credentials"][number]) =>
    state === "byDevops" || !existing.some((one) => one.issuer === issuer && one.subject === subject);
  const total = existing.length + plan.credentials.filter(isNew).length;
  if (total > MAX_FEDERATED_CREDENTIALS)
    throw new Problem(
      "conflict",
      `The application would have ${total} federated credentials, and the limit is ${MAX_FEDERATED_CREDENTIALS}. Delete unused ones.`,
    );
}

/** Returns the secret of a report. */
export const secretIn = ({ secrets }: SecretlessReport, keyId: string): SecretReport | undefined =>
  secrets.find((one) => one.keyId === keyId);

const invalid = (detail: string): Problem =>
  new Problem("invalidRequest", `Correct this and send the request again: ${detail}.`);
