import { X509Certificate } from "node:crypto";
import type * as Acme from "acme-client";
import { audited } from "../audit/audited.ts";
import type { AuditRecorder } from "../audit/event.ts";
import type { RenewalInformation } from "../certificates/renewal-information.ts";
import { certificateIdOf, NoRenewalInformation } from "../certificates/renewal-information.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type {
  PendingCertificate,
  VaultCertificates,
  VaultCertificatesClients,
} from "../platform/azure/vault-certificates.ts";
import { readX509 } from "../platform/azure/x509.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { AcmeAccount } from "./acme.ts";
import { AcmeFailure, derOfChain, namesOfSigningRequest, ORDER_POLL_SECONDS } from "./acme.ts";
import type { Authorities } from "./authorities.ts";
import type { CertificateBudgets } from "./budgets.ts";
import type { Challenges } from "./challenges.ts";
import type { Challenge, RenewalFailure, RenewalRecord, StepName } from "./renewal.ts";

/** The steps of a renewal. Each can run again after a crash at any line. */

/** Thrown by a step that must wait, although nothing failed. */
export class ContinueLater extends Error {
  override readonly name = "ContinueLater";
  readonly seconds: number;
  /** True if the wait is part of an attempt after a failure. The failures of the step still count. */
  readonly afterFailure: boolean;

  constructor(seconds: number, { afterFailure = false } = {}) {
    super(`Continues in ${seconds} s.`);
    this.seconds = seconds;
    this.afterFailure = afterFailure;
  }
}

/** Thrown by a step if the renewal can't succeed. */
export class RenewalFailed extends Error {
  override readonly name = "RenewalFailed";
  readonly failure: RenewalFailure;

  constructor(code: string, message: string, remedy: string) {
    super(message);
    this.failure = { code, message, remedy };
  }
}

/** Thrown by `cancel` if the vault has completed the version, so that there is nothing to roll back. */
export class VersionCompleted extends Error {
  override readonly name = "VersionCompleted";
}

export interface StepDependencies {
  tables: Tables;
  audit: AuditRecorder;
  authorities: Authorities;
  budgets: CertificateBudgets;
  challenges: Challenges;
  vaults: VaultCertificatesClients;
  renewalInformation: Pick<RenewalInformation, "windowOf">;
  /** Requests that the inventory reads a vault again. */
  vaultChanged: (vaultName: string) => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Given to each step: the record as last written, and a function that changes it under the lease of the worker. */
export interface StepContext {
  readonly deps: StepDependencies;
  readonly caller: Caller;
  readonly record: RenewalRecord;
  save(change: Partial<RenewalRecord>): Promise<void>;
}

/** Time after which records that no name server shows, or a validation that does not end, fail the renewal. */
const MAX_OBSERVATION_MS = 30 * MINUTE_MS;
const MAX_VALIDATION_MS = HOUR_MS;
const OBSERVATION_SECONDS = 10;
/** Time within which a request without an answer has its effect, if at all. */
const LATE_WRITE_MS = 2 * MINUTE_MS;
const ISSUE_POLL_SECONDS = 20;
/** A renewal that would wait longer for the budget of its authority fails, so that users see why. */
const MAX_BUDGET_WAIT_MS = HOUR_MS;

export const STEP_FUNCTIONS: Record<StepName, (context: StepContext) => Promise<void>> = {
  order: createOrder,
  publish: publishRecords,
  observe: observeRecords,
  validate: validateNames,
  request: requestKey,
  finalize: finalizeOrder,
  merge: mergeCertificate,
  create: createByPolicy,
  issue: waitForIssue,
  cancel: cancelOperation,
  cleanUp,
};

/** Runs an effect outside of the renewal's own row, between two audit entries. */
async function effect<T>(
  { deps, caller, record }: StepContext,
  type: string,
  details: Record<string, unknown>,
  work: () => Promise<T>,
): Promise<T> {
  const target = { type: "certificateRenewal", id: record.runId };
  const event = { type: `certificateRenewal.${type}`, caller, target };
  return await audited(deps.audit, { ...event, details: { assetId: record.assetId, ...details } }, work);
}

async function accountOf({ deps, record }: StepContext): Promise<AcmeAccount> {
  return await deps.authorities.open(await deps.authorities.get(record.authorityId!));
}

/** Opens the vault of the certificate. @throws {RenewalFailed} if the vault was replaced. */
async function vaultOf({ deps, record }: StepContext): Promise<VaultCertificates> {
  const { vaultName, vaultId } = record;
  const vault = await deps.tables.get(Vaults, VAULTS, vaultKey(vaultName));
  if (vault === undefined || vault.id.toLowerCase() !== vaultId.toLowerCase())
    throw new RenewalFailed(
      "vaultReplaced",
      `The key vault ${vaultName} was deleted or replaced.`,
      "Scan the subscription of the vault, then renew the certificate again.",
    );
  return deps.vaults.open({ name: vault.name, vaultUri: vault.vaultUri });
}

async function createOrder(context: StepContext): Promise<void> {
  const { deps, record } = context;
  if (record.orderUrl !== undefined) return;
  const authority = await deps.authorities.get(record.authorityId!);
  const freeAt = await deps.budgets.use(authority, record.dnsNames, record.runId);
  if (freeAt !== undefined) {
    const waitMs = freeAt.getTime() - deps.clock.now().getTime();
    if (waitMs <= MAX_BUDGET_WAIT_MS) throw new ContinueLater(Math.ceil(waitMs / SECOND_MS));
    throw new RenewalFailed(
      "budgetUsed",
      `The budget of ${authority.name} for these names is used until ${freeAt.toISOString()}.`,
      "Wait until then, or raise the budget of the authority if its limits allow that.",
    );
  }
  const account = await deps.authorities.open(authority);
  let replaces = await replacedCertificate(context, authority.directoryUrl);
  const { dnsNames: names, profile } = record;
  const order = await effect(context, "ordered", { names, authorityId: authority.authorityId }, async () => {
    try {
      return await account.createOrder({ names, profile, replaces });
    } catch (error) {
      // Another order replaced the certificate, or another account ordered it: RFC 9773, section 5.
      const isRefused = error instanceof AcmeFailure && !error.isTransient && !error.unclear;
      if (replaces === undefined || !isRefused) throw error;
      replaces = undefined;
      return await account.createOrder({ names, profile });
    }
  });
  await context.save({ orderUrl: order.url, ...(replaces !== undefined && { replaces }) });
}

/** Returns the identifier of the current version, if this authority issued it and offers renewal information. */
async function replacedCertificate(context: StepContext, directoryUrl: string): Promise<string | undefined> {
  const { record, deps } = context;
  if (record.kind === "issue") return undefined;
  const current = await (await vaultOf(context)).read(record.certificate);
  const id =
    current?.der &&
    certificateIdOf(readX509(current.der, { operation: "read a certificate", resource: record.certificate }, false));
  if (!id) return undefined;
  try {
    await deps.renewalInformation.windowOf(directoryUrl, id);
    return id;
  } catch (error) {
    if (error instanceof NoRenewalInformation) return undefined;
    throw error;
  }
}

/** Returns the order, and fails if the authority rejected it. */
async function readOrder(account: AcmeAccount, { orderUrl }: RenewalRecord): Promise<Acme.Order> {
  const order = await account.getOrder(orderUrl!);
  if (order.status === "invalid") {
    const detail = (order.error as { detail?: string } | undefined)?.detail ?? "The order expired or was rejected.";
    throw new RenewalFailed("orderInvalid", detail, "Fix what the authority names, then renew the certificate again.");
  }
  return order;
}

const dnsChallengeOf = ({ challenges }: Acme.Authorization) => challenges.find(({ type }) => type === "dns-01");

async function publishRecords(context: StepContext): Promise<void> {
  const { deps, record } = context;
  const account = await accountOf(context);
  const order = await readOrder(account, record);
  const authorizations = await account.authorizationsOf(order);
  const challenges: Challenge[] = [];
  for (const authorization of authorizations.filter(({ status }) => status === "pending")) {
    const domain = authorization.identifier.value;
    const challenge = dnsChallengeOf(authorization);
    if (challenge === undefined)
      throw new RenewalFailed(
        "noDnsChallenge",
        `The authority does not validate ${domain} by DNS.`,
        "Use an authority that offers dns-01.",
      );
    const place = await deps.challenges.placeOf(domain);
    if (place === undefined)
      throw new RenewalFailed(
        "noDnsZone",
        `No zone of ACME_DNS_ZONE_IDS contains the record of ${domain}, or the name to which its alias leads.`,
        "Add the DNS zone to the parameter acmeDnsZoneIds of the deployment, or an alias (CNAME) into such a zone.",
      );
    const value = await account.recordValueOf(challenge);
    challenges.push({ domain, zoneId: place.zone.id, recordName: place.recordName, value });
  }
  // Before the records are written, so that the clean-up finds them after a crash. It also removes those of an earlier attempt.
  const earlierChallenges = storedChallenges(record).filter(
    (stored) => !challenges.some((challenge) => isSameRecord(stored, challenge)),
  );
  await context.save({ challenges, earlierChallenges, observedSince: deps.clock.now().toISOString() });
  const records = challenges.map(({ zoneId, recordName }) => `${zoneId}/TXT/${recordName}`);
  await effect(context, "recordsWritten", { records }, async () => {
    for (const challenge of challenges) await deps.challenges.publish(challenge);
  });
}

const storedChallenges = ({ challenges, earlierChallenges = [] }: RenewalRecord) => [
  ...challenges,
  ...earlierChallenges,
];

const isSameRecord = (a: Challenge, b: Challenge): boolean =>
  a.zoneId === b.zoneId && a.recordName === b.recordName && a.value === b.value;

async function observeRecords({ deps, record }: StepContext): Promise<void> {
  for (const challenge of record.challenges) {
    if (await deps.challenges.isServed(challenge)) continue;
    if (deps.clock.now().getTime() - Date.parse(record.observedSince!) < MAX_OBSERVATION_MS)
      throw new ContinueLater(OBSERVATION_SECONDS);
    throw new RenewalFailed(
      "recordNotServed",
      `The name servers of the zone do not serve the record for ${challenge.domain}.`,
      "Check that the zone is delegated to the name servers that Azure DNS shows for it.",
    );
  }
}

async function validateNames(context: StepContext): Promise<void> {
  const { deps, record } = context;
  const account = await accountOf(context);
  if (record.validatedSince === undefined) await context.save({ validatedSince: deps.clock.now().toISOString() });
  const order = await readOrder(account, record);
  const authorizations = await account.authorizationsOf(order);
  for (const authorization of authorizations) {
    const { status, identifier } = authorization;
    if (status === "valid") continue;
    const challenge = dnsChallengeOf(authorization);
    if (status !== "pending" || challenge === undefined) {
      const detail = (challenge as { error?: { detail?: string } } | undefined)?.error?.detail;
      throw new RenewalFailed(
        "notValidated",
        `The authority did not validate ${identifier.value} (${status}). ${detail ?? ""}`.trim(),
        "Check the records and the delegation of the name, then renew the certificate again.",
      );
    }
    if (challenge.status === "pending")
      await effect(context, "validationRequested", { name: identifier.value }, () =>
        account.completeChallenge(challenge),
      );
  }
  if (authorizations.every(({ status }) => status === "valid")) return;
  if (deps.clock.now().getTime() - Date.parse(context.record.validatedSince!) < MAX_VALIDATION_MS)
    throw new ContinueLater(ORDER_POLL_SECONDS);
  throw new RenewalFailed(
    "validationTimeout",
    "The authority did not finish the validation within an hour.",
    "Renew the certificate again later.",
  );
}

/**
 * Starts the operation that makes the key and the signing request, unless an earlier attempt did. An earlier attempt is recognized
 * by `operationAt`, which is stored before, and by the names in the signing request.
 */
async function requestKey(context: StepContext): Promise<void> {
  const { record } = context;
  const vault = await vaultOf(context);
  const { certificate, dnsNames, key, exportable, tags } = record;
  const start = () =>
    vault.createRequest(certificate, { dnsNames, key, exportable }, tags, context.record.earlierPolicy);
  await startOperation(context, vault, "keyRequested", start, async ({ csr }) => {
    const names = csr && (await namesOfSigningRequest(csr));
    return names !== undefined && names.join() === [...dnsNames].sort().join();
  });
}

async function createByPolicy(context: StepContext): Promise<void> {
  const vault = await vaultOf(context);
  const { certificate, tags } = context.record;
  const start = () => vault.createByPolicy(certificate, tags);
  await startOperation(
    context,
    vault,
    "versionRequested",
    start,
    async ({ requestId }) => requestId !== context.record.earlierOperationId,
  );
}

async function startOperation(
  context: StepContext,
  vault: VaultCertificates,
  event: string,
  start: () => Promise<PendingCertificate>,
  isOurs: (operation: PendingCertificate) => Promise<boolean>,
): Promise<void> {
  const { deps, record } = context;
  if (record.operationId !== undefined) return;
  const { certificate } = record;
  const pending = await vault.pending(certificate);
  const isUnfinished = pending?.status === "inProgress";
  if (record.operationAt === undefined) {
    if (isUnfinished) throw otherOperation(certificate);
    const current = await vault.read(certificate);
    // The operation of `acme` replaces the policy, so a rollback restores it.
    const earlierPolicy = record.method === "acme" && current ? await vault.policy(certificate) : undefined;
    await context.save({
      operationAt: deps.clock.now().toISOString(),
      earlierOperationId: pending?.requestId,
      ...(earlierPolicy && { earlierPolicy }),
      ...(current?.der && { previousVersion: current.version }),
    });
  } else if (isUnfinished) {
    if (!(await isOurs(pending))) throw otherOperation(certificate);
    return await context.save({ operationId: pending.requestId, operationFound: true });
  } else if (record.method === "vaultPolicy") {
    const current = await vault.read(certificate);
    const isNew = pending?.status === "completed" && pending.requestId !== record.earlierOperationId;
    if (isNew && current?.der && current.version !== record.previousVersion)
      return await context.save({ operationId: pending.requestId, operationFound: true });
    // A request without an answer may still have its effect. A second one would make a second version.
    const waitMs = Date.parse(record.operationAt) + LATE_WRITE_MS - deps.clock.now().getTime();
    if (waitMs > 0) throw new ContinueLater(Math.ceil(waitMs / SECOND_MS), { afterFailure: true });
    await context.save({ operationAt: deps.clock.now().toISOString() });
  }
  const { requestId } = await effect(context, event, { certificate }, start);
  await context.save({ operationId: requestId });
}

const otherOperation = (certificate: string): RenewalFailed =>
  new RenewalFailed(
    "operationInProgress",
    `Another operation creates a version of ${certificate} in the key vault.`,
    "Complete or delete the pending operation of the certificate in the vault, then renew the certificate again.",
  );

/** Returns the signing request of this renewal's operation. @throws {RenewalFailed} if someone removed or replaced it. */
async function pendingOf(vault: VaultCertificates, { certificate, operationId }: RenewalRecord) {
  const pending = await vault.pending(certificate);
  if (pending === undefined || pending.requestId !== operationId || pending.status !== "inProgress" || !pending.csr)
    throw new RenewalFailed(
      "operationLost",
      "The pending operation of the certificate was deleted, completed or replaced by someone else.",
      "Renew the certificate again.",
    );
  return { ...pending, csr: pending.csr };
}

async function finalizeOrder(context: StepContext): Promise<void> {
  const { record } = context;
  const account = await accountOf(context);
  const order = await readOrder(account, record);
  if (order.status === "valid") return;
  if (order.status === "ready") {
    const { csr } = await pendingOf(await vaultOf(context), record);
    await effect(context, "finalized", { order: record.orderUrl }, () => account.finalize(order, csr));
  } else if (order.status === "pending")
    throw new RenewalFailed(
      "orderNotReady",
      "The authority no longer regards the names as validated.",
      "Renew the certificate again.",
    );
  throw new ContinueLater(ORDER_POLL_SECONDS);
}

async function mergeCertificate(context: StepContext): Promise<void> {
  const { record } = context;
  if (record.version !== undefined) return;
  const { certificate, preferredChain } = record;
  const account = await accountOf(context);
  const chain = derOfChain(await account.certificate(await readOrder(account, record), preferredChain));
  const [leaf] = chain;
  if (leaf === undefined)
    throw new RenewalFailed("noCertificate", "The authority sent no certificate.", "Ask the authority.");
  const vault = await vaultOf(context);
  let current = await vault.read(certificate);
  if (!current?.der?.equals(leaf)) {
    await pendingOf(vault, record);
    current = await effect(context, "merged", { certificate }, () => vault.merge(certificate, chain));
  }
  await context.save(issuedFacts(current.version, leaf));
}

function issuedFacts(version: string, der: Buffer): Partial<RenewalRecord> {
  const { serialNumber, validToDate } = new X509Certificate(der);
  return { version, serialNumber: serialNumber.toLowerCase(), expiresOn: validToDate.toISOString() };
}

/** Waits until the vault has the version: at once for self-signed certificates, later for those of connected authorities. */
async function waitForIssue(context: StepContext): Promise<void> {
  const { record } = context;
  if (record.version !== undefined) return;
  const vault = await vaultOf(context);
  const pending = await vault.pending(record.certificate);
  const current = await vault.read(record.certificate);
  const isReplaced = pending !== undefined && pending.requestId !== record.operationId;
  if (pending?.status === "inProgress" && !isReplaced) throw new ContinueLater(ISSUE_POLL_SECONDS);
  if (!isReplaced && pending?.status !== "failed" && pending?.status !== "cancelled") {
    if (current?.der && current.version !== record.previousVersion)
      return await context.save(issuedFacts(current.version, current.der));
  }
  throw new RenewalFailed(
    "notIssued",
    "The authority that is connected to the vault did not issue the version, or someone cancelled it.",
    "Read the pending operation of the certificate in the vault, fix the issuer, then renew the certificate again.",
  );
}

/** Deletes the operation of this renewal, and restores the policy of the certificate, so that the vault is as before. */
async function cancelOperation(context: StepContext): Promise<void> {
  const { record } = context;
  const { certificate, earlierPolicy } = record;
  if (record.operationAt === undefined) return;
  const vault = await vaultOf(context).catch((error: unknown) => {
    // The operation was deleted with its vault.
    if (error instanceof RenewalFailed) return undefined;
    throw error;
  });
  if (vault === undefined) return;
  const pending = await vault.pending(certificate);
  if (pending !== undefined) {
    // The operation, and the policy of the certificate, are then those of someone else.
    if (!(await isOwnOperation(record, pending))) return;
    if (pending.status === "completed") {
      const current = await vault.read(certificate);
      if (current?.der && current.version !== record.previousVersion) {
        await context.save(issuedFacts(current.version, current.der));
        throw new VersionCompleted();
      }
    } else if (record.method === "vaultPolicy" && (record.operationFound || record.operationId === undefined)) {
      // It may be that of the vault's own renewal, or of another program.
      return;
    } else await effect(context, "operationDeleted", { certificate }, () => vault.discardPending(certificate));
  }
  if (earlierPolicy !== undefined)
    await effect(context, "policyRestored", { certificate }, () => vault.restorePolicy(certificate, earlierPolicy));
}

async function isOwnOperation(record: RenewalRecord, { requestId, csr }: PendingCertificate): Promise<boolean> {
  if (record.operationId !== undefined) return requestId === record.operationId;
  return csr !== undefined && (await namesOfSigningRequest(csr)).join() === [...record.dnsNames].sort().join();
}

async function cleanUp(context: StepContext): Promise<void> {
  const { deps, record } = context;
  // First, because the records may need several attempts.
  if (record.version !== undefined) await deps.vaultChanged(record.vaultName);
  const challenges = storedChallenges(record);
  if (challenges.length > 0) {
    const records = challenges.map(({ zoneId, recordName }) => `${zoneId}/TXT/${recordName}`);
    await effect(context, "recordsDeleted", { records }, async () => {
      for (const challenge of challenges) {
        await deps.challenges.remove(challenge).catch((error: unknown) => {
          // The zone was deleted, and its records with it.
          if (!(error instanceof CloudFailure) || error.code !== "notFound") throw error;
        });
      }
    });
  }
}
