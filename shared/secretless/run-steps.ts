import { BLIND_SPOT_TEXTS, BLIND_SPOTS } from "../applications/credential-usage.ts";
import type { ConnectionFederation, DevopsOrganization } from "../devops/devops.ts";
import { CloudFailure, unlessMissing } from "../platform/azure/failure.ts";
import type { FederatedCredential } from "../platform/azure/graph.ts";
import { Problem } from "../platform/http/problem.ts";
import { DAY_MS, HOUR_SECONDS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { BlindSpot, RunConnection, RunCredential, RunRecord, RunStep } from "../rotation/secretless-run.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../rotation/step-errors.ts";
import type { SecretlessReport } from "./report.ts";
import type { RunContext } from "./run-context.ts";
import { planRun, requireRoom, secretIn } from "./run-plan.ts";

/**
 * The steps of runs. Each step may run again after a crash at any point, so it stores its intent before it changes anything, and
 * looks at what is there before it repeats a change.
 */

const RETRY_SECONDS = 60;
/** Time after which a request without a response has no further effect. */
const LATE_WRITE_MS = 2 * MINUTE_MS;
/** Time for which a check of the logs is valid. After it, the logs are checked again before the removal. */
const CHECK_VALID_MS = 5 * MINUTE_MS;
/** Number of failed sign-ins of a converted connection after which a person must look. */
const MAX_FAILED_SIGN_INS = 10;

export const STEP_FUNCTIONS: Record<RunStep, (context: RunContext) => Promise<void>> = {
  check: checkPlan,
  add: addCredentials,
  prove: markProofs,
  convert: convertConnections,
  watch: watchSignIns,
  remove: removeSecret,
  revert: revertConnections,
  takeBack: takeBackCredentials,
};

/** Compares the plan with the report of now and with the directory. Nothing is changed before it has passed. */
async function checkPlan({ deps, record }: RunContext): Promise<void> {
  const report = await deps.report(record.appId);
  const plan = planAgain(report, record, deps.parseConnection);
  if (plan !== record.plan)
    throw new RollBack(
      "planChanged",
      "The report has changed since the run was planned.",
      "Read the report again, and start another run.",
    );
  const rotationId = await deps.rotationOf(record.appId);
  if (rotationId !== undefined)
    throw new RollBack(
      "rotationUnfinished",
      `Rotation ${rotationId} of the application has not ended.`,
      "Wait for it, or cancel it. Then start another run.",
    );
  const app = await deps.graph.findApplication({ objectId: record.objectId });
  if (!app?.passwords.some(({ keyId }) => keyId === record.keyId))
    throw new RollBack("secretGone", "The application no longer has the client secret.", "No action needed.");
  const existing = await deps.graph.federatedCredentials(record.objectId);
  for (const credential of record.credentials) {
    const same = existing.find((one) => isSame(one, credential));
    if (same !== undefined && same.name !== credential.name && !hasAudience(same, credential))
      throw new RollBack(
        "audienceDiffers",
        `The federated credential ${same.name} has the same issuer and subject, and another audience.`,
        "Correct its audience, or delete it. Then start another run.",
      );
  }
  await requireClaims(deps, record);
  try {
    requireRoom(existing, record);
  } catch (error) {
    if (error instanceof Problem) throw new RollBack("federatedCredentialLimit", error.message, "Delete unused ones.");
    throw error;
  }
}

/** Returns the fingerprint of the plan that the report gives now. Undefined if it gives none. */
function planAgain(
  report: SecretlessReport,
  { keyId, credentials }: RunRecord,
  parseConnection: RunContext["deps"]["parseConnection"],
): string | undefined {
  const replacements = credentials.flatMap(({ issuer, subject, audience, consumers, name }) =>
    name === "" ? [] : consumers.map((consumer) => ({ consumer, issuer, subject, audience })),
  );
  try {
    return planRun(report, { keyId, replacements }, parseConnection).plan;
  } catch (error) {
    if (error instanceof Problem) return undefined;
    throw error;
  }
}

/** @throws {RollBack} claimsDiffer if Azure shows that a consumer presents another issuer or subject. */
async function requireClaims(
  { claimsOf }: Pick<RunContext["deps"], "claimsOf">,
  { credentials, consumers }: RunRecord,
): Promise<void> {
  for (const credential of credentials.filter(({ name }) => name !== "")) {
    for (const consumer of consumers.filter(({ id }) => credential.consumers.includes(id))) {
      const problem = claimProblem(credential, await claimsOf(consumer), consumer.name);
      if (problem !== undefined)
        throw new RollBack("claimsDiffer", problem, "Start another run with the values that the workload presents.");
    }
  }
}

/** Returns why a credential does not fit what Azure shows of a consumer. */
export function claimProblem(
  { issuer, subject }: Pick<RunCredential, "issuer" | "subject">,
  { issuers, subjects }: { issuers?: string[]; subjects?: string[] },
  consumer: string,
): string | undefined {
  if (issuers !== undefined && !issuers.includes(issuer))
    return `${consumer} presents the issuer ${issuers.join(" or ") || "none"}, not ${issuer}.`;
  if (subjects !== undefined && !subjects.includes(subject))
    return `${consumer} has the user-assigned identities with the principal IDs ${subjects.join(", ") || "none"}, not ${subject}.`;
  return undefined;
}

const isSame = (one: FederatedCredential, { issuer, subject }: RunCredential): boolean =>
  one.issuer === issuer && one.subject === subject;
const hasAudience = ({ audiences }: FederatedCredential, { audience }: RunCredential): boolean =>
  audiences.length === 1 && audiences[0] === audience;

const changeCredential =
  (name: string, change: Partial<RunCredential>) =>
  ({ credentials }: RunRecord): Partial<RunRecord> => ({
    credentials: credentials.map((one) => (one.name === name ? { ...one, ...change } : one)),
  });
const changeConnection =
  (consumer: string, change: Partial<RunConnection>) =>
  ({ connections }: RunRecord): Partial<RunRecord> => ({
    connections: connections.map((one) => (one.consumer === consumer ? { ...one, ...change } : one)),
  });

/** Adds the federated credentials, one in each run of the step. The name makes a repeated request harmless. */
async function addCredentials(context: RunContext): Promise<void> {
  const { deps, record } = context;
  const credential = record.credentials.find(({ state }) => state === "planned" || state === "asked");
  if (credential === undefined) return;
  const { name, issuer, subject, audience } = credential;
  const listed = (await deps.graph.federatedCredentials(record.objectId)).find((one) => isSame(one, credential));
  if (listed !== undefined) {
    if (!hasAudience(listed, credential))
      throw new RollBack(
        "audienceDiffers",
        `The federated credential ${listed.name} has another audience.`,
        "Correct it.",
      );
    await context.save(changeCredential(name, { state: listed.name === name ? "added" : "existing" }));
  } else {
    const askedAt = context.now().toISOString();
    await context.save(changeCredential(name, { state: "asked", askedAt: credential.askedAt ?? askedAt }));
    const value = { name, issuer, subject, audiences: [audience] };
    await context.withDirectoryLease(() =>
      context.audited("secretless.credentialAdded", value, () =>
        deps.graph.putFederatedCredential(record.objectId, value),
      ),
    );
    await context.save(changeCredential(name, { state: "added" }));
  }
  throw new ContinueLater(0);
}

/** Says which credentials the service can't prove itself. A token of the workload, or Azure DevOps, can still prove them. */
async function markProofs(context: RunContext): Promise<void> {
  await context.save(({ credentials }) => ({
    credentials: credentials.map((one) => (one.proof === undefined ? { ...one, proof: "notProvable" } : one)),
  }));
}

async function organizationOf({ deps }: RunContext): Promise<DevopsOrganization> {
  const organization = await deps.devops.organization();
  if (organization !== undefined) return organization;
  throw new NeedsAttention(
    "devopsOff",
    "The integration with Azure DevOps is turned off.",
    "Turn it on, and retry the run.",
  );
}

const applicationOf = ({ record: { appId, tenantId } }: RunContext) => ({
  appId: appId.toLowerCase(),
  tenantId: tenantId.toLowerCase(),
});

/**
 * Converts the service connections, one in each run of the step. Azure DevOps converts those that it created. For the others a
 * person completes the conversion, and the step waits for it. Both must sign in and present the planned issuer and subject.
 */
async function convertConnections(context: RunContext): Promise<void> {
  const connection = context.record.connections.find(({ state }) => state !== "converted");
  if (connection === undefined) return;
  const organization = await organizationOf(context);
  const { consumer, name } = connection;
  const federation = await organization.federation(connection, applicationOf(context));
  if (federation.with !== "federation") {
    if (!connection.automatic) {
      await context.save(changeConnection(consumer, { state: "waiting" }));
      throw new ContinueLater(10 * RETRY_SECONDS);
    }
    await context.save(changeConnection(consumer, { state: "converting" }));
    await context.audited("secretless.connectionConverted", { connection: name }, () =>
      organization.convert(connection, applicationOf(context), "federation"),
    );
    throw new ContinueLater(0);
  }
  await requireConverted(context, connection, federation);
  await context.save(({ credentials, connections }) => ({
    connections: connections.map((one) => (one.consumer === consumer ? { ...one, state: "converted" } : one)),
    credentials: credentials.map((one) =>
      one.consumers.includes(consumer)
        ? {
            ...one,
            issuer: federation.issuer ?? one.issuer,
            subject: federation.subject ?? one.subject,
            isVerified: true,
            proof: "connection" as const,
            provenAt: context.now().toISOString(),
          }
        : one,
    ),
  }));
  throw new ContinueLater(0);
}

/** @throws {NeedsAttention} if a converted connection presents other claims, or does not sign in. */
async function requireConverted(
  context: RunContext,
  { consumer, name, automatic, failedSignIns = 0 }: RunConnection,
  { issuer, subject, signsIn }: ConnectionFederation,
): Promise<void> {
  const credential = context.record.credentials.find(({ consumers }) => consumers.includes(consumer));
  if (!automatic && credential && (issuer !== credential.issuer || subject !== credential.subject))
    throw new NeedsAttention(
      "claimsDiffer",
      `The service connection ${name} presents the issuer ${issuer ?? "unknown"} and the subject ${subject ?? "unknown"}, which differ from the federated credential.`,
      "Roll the run back, and start another one with these values.",
    );
  if (signsIn) return;
  // Microsoft Entra may not know a new federated credential for some minutes.
  const isWaiting = failedSignIns < MAX_FAILED_SIGN_INS;
  await context.save(changeConnection(consumer, { failedSignIns: isWaiting ? failedSignIns + 1 : 0 }));
  if (isWaiting) throw new ContinueLater(RETRY_SECONDS / 2);
  throw new NeedsAttention(
    "connectionFails",
    `Azure DevOps can't sign in with the converted service connection ${name}.`,
    "Check the federated credentials of the application and retry, or roll back the run.",
  );
}

/**
 * Waits until the logs show no sign-in with the secret for the requested days since the workloads could switch, and until a person
 * has confirmed what the logs can't show.
 */
async function watchSignIns(context: RunContext): Promise<void> {
  const { deps, record } = context;
  const now = context.now();
  const report = await deps.report(record.appId);
  const secret = secretIn(report, record.keyId);
  if (secret === undefined) {
    // The report can be older than the directory.
    if (await isListed(context)) throw new ContinueLater(HOUR_SECONDS);
    return;
  }
  const since = record.watch?.since ?? now.toISOString();
  const { lastUsedAt, idleDays: logged } = secret.usage;
  const unusedSince = Math.max(Date.parse(since), Date.parse(lastUsedAt ?? since));
  const days = Math.max(0, Math.floor((now.getTime() - unusedSince) / DAY_MS));
  const idleDays = logged === undefined ? days : Math.min(logged, days);
  const blindSpots = blindSpotsOf(record, report);
  await context.save(() => ({
    watch: {
      since,
      checkedAt: now.toISOString(),
      ...(lastUsedAt !== undefined && { lastUsedAt }),
      idleDays,
      isLogged: logged !== undefined,
      blindSpots,
    },
  }));
  const unconfirmed = unconfirmedOf(context.record);
  if (idleDays < record.idleDays || unconfirmed.length > 0) throw new ContinueLater(HOUR_SECONDS);
}

/** Returns the blind spots that no person has confirmed. */
export const unconfirmedOf = ({ watch, confirmed }: RunRecord): BlindSpot[] =>
  (watch?.blindSpots ?? []).filter(({ code }) => !confirmed?.codes.includes(code));

/** Returns what neither the logs nor the sources of the report show. */
function blindSpotsOf({ credentials, consumers, keyId }: RunRecord, report: SecretlessReport): BlindSpot[] {
  const secret = secretIn(report, keyId)!;
  const known = new Set(consumers.map(({ id }) => id));
  const found: BlindSpot[] = [
    ...BLIND_SPOTS.map((code) => ({ code, message: `No log shows it: ${BLIND_SPOT_TEXTS[code]}.` })),
    ...(secret.usage.idleDays === undefined ? [{ code: "noLog", message: secret.usage.evidence }] : []),
    ...secret.consumers
      .filter(({ id }) => !known.has(id))
      .map(({ id, name }) => ({
        code: `newConsumer:${id}`,
        message: `${name} uses the secret and is not in the plan.`,
      })),
    ...credentials
      .filter(({ proof }) => proof !== "exchanged" && proof !== "connection")
      .map(({ subject, isVerified, consumers: [first] }) => ({
        code: `notProven:${first}`,
        message: `No token was exchanged with the federated credential for ${subject}.${isVerified ? "" : " Whether the workload presents this issuer and subject is unknown."}`,
      })),
    ...[...report.unknown, ...secret.unknown].map(({ code, message }) => ({ code, message })),
  ];
  return [...new Map(found.map((one) => [one.code, one])).values()];
}

/** Returns whether the application still has the client secret. */
const isListed = async ({ deps, record: { objectId, keyId } }: RunContext): Promise<boolean> =>
  (await deps.graph.findApplication({ objectId }))?.passwords.some((one) => one.keyId === keyId) ?? false;

const REMOVED_ELSEWHERE = "The client secret was removed by someone else.";

/** Removes the client secret. Before each request, everything that could show a lost sign-in is read again. */
async function removeSecret(context: RunContext): Promise<void> {
  const { deps, record } = context;
  const { objectId, keyId, removingSince, watch } = record;
  if (!(await isListed(context))) {
    if (removingSince === undefined && !record.notes.includes(REMOVED_ELSEWHERE))
      await context.save(({ notes }) => ({ notes: [...notes, REMOVED_ELSEWHERE] }));
    return await appChanged(context);
  }
  if (removingSince !== undefined) {
    // A request without a response may still take effect. After that time it did nothing, and a rollback is possible again.
    const waitMs = Date.parse(removingSince) + LATE_WRITE_MS - context.now().getTime();
    if (waitMs > 0) throw new ContinueLater(Math.ceil(waitMs / SECOND_MS));
    await context.save(() => ({ removingSince: undefined }));
  }
  if (watch === undefined || context.now().getTime() - Date.parse(watch.checkedAt) > CHECK_VALID_MS) {
    await context.save(({ steps }) => ({
      steps: steps.map((one) => (one.name === "watch" ? { ...one, status: "waiting" } : one)),
    }));
    throw new ContinueLater(0);
  }
  await requireCredentials(context);
  await context.withDirectoryLease(async () => {
    await context.save((current) => {
      // The person was told that the run is rolled back.
      if (current.rollback !== undefined) throw new ContinueLater(0);
      return { removingSince: context.now().toISOString() };
    });
    try {
      await context.audited("secretless.secretRemoved", {}, async () => {
        await unlessMissing(deps.graph.removePassword(objectId, keyId));
      });
    } catch (error) {
      // Nothing was removed, so a rollback is possible again.
      if (error instanceof CloudFailure && !error.unclear) await context.save(() => ({ removingSince: undefined }));
      throw error;
    }
  });
  // Microsoft Graph can answer that the secret is absent although it exists.
  if (await isListed(context)) throw new ContinueLater(RETRY_SECONDS);
  await appChanged(context);
}

const appChanged = ({ deps, record: { appId, objectId, keyId } }: RunContext): Promise<void> =>
  deps.inventory.applicationChanged({ appId, objectId, removed: keyId });

/** @throws {NeedsAttention} if a federated credential that replaces the secret is missing or changed, or a connection was reverted. */
async function requireCredentials(context: RunContext): Promise<void> {
  const { deps, record } = context;
  const listed = await deps.graph.federatedCredentials(record.objectId);
  for (const credential of record.credentials) {
    if (listed.some((one) => isSame(one, credential) && hasAudience(one, credential))) continue;
    throw new NeedsAttention(
      "credentialGone",
      `The secret was not removed: the federated credential for ${credential.subject} is missing or was changed.`,
      "Add it again and retry, or roll back the run.",
    );
  }
  if (record.connections.length === 0) return;
  const organization = await organizationOf(context);
  for (const connection of record.connections) {
    const federation = await organization.federation(connection, applicationOf(context));
    if (federation.with === "federation" && federation.signsIn) continue;
    throw new NeedsAttention(
      "connectionFails",
      `The secret was not removed: the service connection ${connection.name} does not sign in without it.`,
      "Check the service connection and retry, or roll back the run.",
    );
  }
}

/** Reverts the conversions of this run. A connection that a person converted stays, because Azure DevOps has no secret for it. */
async function revertConnections(context: RunContext): Promise<void> {
  const connection = context.record.connections.find(
    ({ state, automatic }) => automatic && (state === "converting" || state === "converted" || state === "reverting"),
  );
  if (connection === undefined) return;
  const organization = await organizationOf(context);
  const federation = await organization.federation(connection, applicationOf(context));
  if (federation.with === "federation") {
    await context.save(changeConnection(connection.consumer, { state: "reverting" }));
    try {
      await context.audited("secretless.connectionReverted", { connection: connection.name }, () =>
        organization.convert(connection, applicationOf(context), "secret"),
      );
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "refused") throw error;
      throw new NeedsAttention(
        "notReverted",
        `Azure DevOps does not revert the conversion of ${connection.name}. It keeps the secret for seven days.`,
        "Leave the connection converted, and continue the run with retry. Or revert it in Azure DevOps, and retry.",
      );
    }
  }
  await context.save(changeConnection(connection.consumer, { state: "reverted" }));
  throw new ContinueLater(0);
}

/** Removes the federated credentials that this run added, one in each run of the step. */
async function takeBackCredentials(context: RunContext): Promise<void> {
  const { deps, record } = context;
  const credential = record.credentials.find(({ state }) => state === "asked" || state === "added");
  if (credential === undefined) return;
  const { name, askedAt, consumers } = credential;
  const users = record.connections.filter(({ consumer, automatic }) => !automatic && consumers.includes(consumer));
  for (const connection of users) {
    const organization = await organizationOf(context);
    const federation = await unlessMissing(organization.federation(connection, applicationOf(context)));
    if (federation?.with !== "federation") continue;
    const note = `The federated credential ${name} was kept, because the service connection ${connection.name} uses it.`;
    await context.save((current) => ({
      ...changeCredential(name, { state: "kept" })(current),
      notes: [...current.notes, note],
    }));
    throw new ContinueLater(0);
  }
  // A request without a response may still take effect.
  const waitMs = Date.parse(askedAt ?? "") + LATE_WRITE_MS - context.now().getTime();
  if (credential.state === "asked" && waitMs > 0) throw new ContinueLater(Math.ceil(waitMs / SECOND_MS));
  const listed = (await deps.graph.federatedCredentials(record.objectId)).find((one) => one.name === name);
  if (listed !== undefined) {
    await context.withDirectoryLease(() =>
      context.audited("secretless.credentialRemoved", { name }, () =>
        deps.graph.removeFederatedCredential(record.objectId, listed.id),
      ),
    );
  } else if (credential.state === "added" && waitMs > 0) {
    // A read can be older than the credential.
    throw new ContinueLater(Math.ceil(waitMs / SECOND_MS));
  }
  await context.save(changeCredential(name, { state: "removed" }));
  throw new ContinueLater(0);
}
