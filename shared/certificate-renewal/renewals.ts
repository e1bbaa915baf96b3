import { X509Certificate } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { type AssetRecord, assetId, fingerprint, locationsOf } from "../inventory/asset.ts";
import type { Inventory } from "../inventory/inventory.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { VaultCertificate } from "../platform/azure/vault-certificates.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem, retryLater } from "../platform/http/problem.ts";
import { NameServersUnreachable } from "../platform/outgoing/name-servers.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { StorageCorrupt } from "../platform/storage/tables.ts";
import { DAY_MS, HOUR_SECONDS, MINUTE_SECONDS, SECOND_MS } from "../platform/time.ts";
import { isUlid } from "../platform/ulid.ts";
import type { Settings } from "../settings/settings.ts";
import { pemOf } from "./acme.ts";
import { asProblem } from "./authorities.ts";
import { createCancellation } from "./cancellation.ts";
import { createDueCheck } from "./due.ts";
import { createRenewalPolicies, type RenewalPolicies } from "./policies.ts";
import { type KeySpec, POLICIES, Policies, policyKey, SCHEDULES, Schedules } from "./policy.ts";
import { QUEUE, RENEWALS, type RenewalMessage, type RenewalRecord, Renewals, stepsOf } from "./renewal.ts";
import { createRenewalRows, RECORD_PREFIX, type RenewalRows, UnfinishedRenewal } from "./rows.ts";
import { createStepRunner } from "./step-runner.ts";
import type { StepDependencies } from "./steps.ts";

/** A request to issue a new certificate. */
export interface IssueRequest {
  vaultName: string;
  certificate: string;
  dnsNames: string[];
  authorityId: string;
  key: KeySpec;
  exportable: boolean;
}

/** What a renewal would do. Nothing was changed. */
export interface RenewalPlan {
  record: Omit<RenewalRecord, "writeId">;
  /** What is missing for the renewal, as sentences. */
  missing: string[];
  /** Names with the zone in which their record is written. */
  records: { domain: string; zoneId: string; recordName: string }[];
}

/** Issues, renews and revokes certificates. */
export interface CertificateRenewals extends RenewalPolicies {
  /** @throws {Problem} notFound, invalidRequest, conflict, serviceVault, unavailable */
  planIssue(request: IssueRequest, caller: Caller): Promise<RenewalPlan>;
  planRenewal(id: string, caller: Caller): Promise<RenewalPlan>;
  /** Starts the renewal of a plan, which continues by queue messages. @throws {Problem} conflict */
  start(plan: RenewalPlan, caller: Caller): Promise<Row<RenewalRecord>>;
  list(id: string | undefined, request: PageRequest): Promise<Page<Row<RenewalRecord>>>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<Row<RenewalRecord>>;
  /** Starts the rollback of a running renewal. Does nothing if it was cancelled before. @throws {Problem} notFound, conflict, unavailable */
  cancel(runId: string, caller: Caller): Promise<Row<RenewalRecord>>;
  /** Revokes a version at its authority. @throws {Problem} notFound, conflict, unavailable */
  revoke(
    id: string,
    request: { authorityId: string; version: string; reason: number },
    caller: Caller,
  ): Promise<{ version: string; serialNumber: string }>;
  handle(message: RenewalMessage, requestId: string): Promise<void>;
  /** Continues renewals whose message was lost, starts due ones, and deletes old ones and unreferenced keys. */
  runSchedule(requestId: string): Promise<void>;
}

/** A failed automatic renewal is repeated after this time, doubled with each further failure. */
const FIRST_RETRY_SECONDS = 6 * HOUR_SECONDS;
const LONGEST_RETRY_SECONDS = 48 * HOUR_SECONDS;
/** Automatic renewals that one run of the timer starts at most. */
const MAX_STARTS = 20;
const MAX_ACME_NAMES = 100;

export function createRenewals(
  deps: Omit<StepDependencies, "audit"> & {
    audit: Pick<Audit, "append">;
    config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "ACME_DNS_ZONE_IDS">;
    queues: Queues;
    settings: Pick<Settings, "values">;
    inventory: Pick<Inventory, "assets" | "moment">;
    licensed: () => Promise<boolean>;
  },
): CertificateRenewals {
  const { tables, audit, config, queues, settings, inventory, authorities, budgets, challenges, vaults } = deps;
  const { clock, randomness, log } = deps;
  const rows = createRenewalRows({ tables, clock, randomness });
  const runner = createStepRunner({ ...deps, rows, queues, ended: recordEnd });
  const cancel = createCancellation({ rows, runner, audit, clock });
  const nowSeconds = (): number => Math.floor(clock.now().getTime() / SECOND_MS);
  const isDue = createDueCheck(deps);
  const policies = createRenewalPolicies({ tables, audit, authorities, clock, certificateOf });

  /** Writes the audit entry of the end, and delays the next automatic attempt after a failure. */
  async function recordEnd(record: RenewalRecord): Promise<void> {
    const { runId, assetId: id, status, version, failure, automatic } = record;
    await audit.append({
      type: "certificateRenewal.ended",
      caller: { actor: "system", requestId: record.requestId },
      target: { type: "certificateRenewal", id: runId },
      outcome: status === "completed" ? "success" : "failure",
      details: { assetId: id, version: version ?? null, ...(failure && { reason: failure.code }) },
    });
    if (!automatic || status !== "failed") return;
    await tables.modify(Schedules, SCHEDULES, policyKey(id), (row) => {
      if (row === undefined) return undefined;
      const failures = row.failures + 1;
      const pause = Math.min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (failures - 1));
      return { ...withoutKeys(row), failures, notBefore: nowSeconds() + pause };
    });
  }

  /** Returns the certificate of an asset ID. @throws {Problem} notFound, serviceVault */
  async function certificateOf(id: string): Promise<AssetRecord> {
    const found = await inventory.assets.get(id, await inventory.moment());
    const [location] = locationsOf(id);
    if (!found || location?.type !== "certificate" || found.asset.type !== "certificate")
      throw notFound(`The certificate ${id.slice(0, 300)}`);
    requireForeignVault(found.asset.vaultName);
    return found.asset;
  }

  function requireForeignVault(vaultName: string): void {
    if (isServiceVault(config, vaultName))
      throw new Problem("serviceVault", "The service's own key vault has no certificates that are renewed.");
  }

  async function vaultOf(vaultName: string) {
    const vault = await tables.get(Vaults, VAULTS, vaultKey(vaultName));
    if (vault === undefined) throw notFound(`The key vault ${vaultName.slice(0, 64)}`);
    return vault;
  }

  async function readCertificate(vaultName: string, certificate: string): Promise<VaultCertificate | undefined> {
    const vault = await vaultOf(vaultName);
    const client = vaults.open({ name: vault.name, vaultUri: vault.vaultUri });
    return await client.read(certificate).catch(cloudProblem);
  }

  /** Adds what every plan checks: budget, zones, and operations of others. */
  async function completePlan(record: Omit<RenewalRecord, "writeId">): Promise<RenewalPlan> {
    const missing: string[] = [];
    const records: RenewalPlan["records"] = [];
    const running = await rows.unfinishedOf(record.assetId);
    if (running !== undefined) missing.push(`The renewal ${running} of this certificate is in progress.`);
    if (record.authorityId !== undefined) {
      const authority = await authorities.get(record.authorityId);
      const freeAt = await budgets.freeAt(authority, record.dnsNames);
      if (freeAt) missing.push(`The budget of ${authority.name} is used until ${freeAt.toISOString()}.`);
      if (record.dnsNames.length === 0) missing.push("The certificate has no DNS names.");
      if (record.dnsNames.length > MAX_ACME_NAMES) missing.push(`A certificate has at most ${MAX_ACME_NAMES} names.`);
      for (const domain of new Set(record.dnsNames.map((name) => name.replace(/^\*\./, "")))) {
        const place = await challenges.placeOf(domain).catch((error: unknown) => {
          if (error instanceof NameServersUnreachable) throw retryLater("unavailable", error.message, MINUTE_SECONDS);
          throw error;
        });
        if (place) records.push({ domain, zoneId: place.zone.id, recordName: place.recordName });
        else missing.push(`No zone of ACME_DNS_ZONE_IDS contains the record of ${domain}.`);
      }
    }
    const vault = await vaultOf(record.vaultName);
    const client = vaults.open({ name: vault.name, vaultUri: vault.vaultUri });
    const pending = await client.pending(record.certificate).catch(cloudProblem);
    if (running === undefined && pending?.status === "inProgress")
      missing.push("Another operation creates a version of the certificate in the key vault.");
    return { record, missing, records };
  }

  async function planIssue(request: IssueRequest, caller: Caller): Promise<RenewalPlan> {
    const { vaultName, certificate, dnsNames, authorityId, key, exportable } = request;
    requireForeignVault(vaultName);
    const vault = await vaultOf(vaultName);
    const authority = await authorities.get(authorityId);
    const existing = await readCertificate(vaultName, certificate);
    if (existing?.der)
      throw new Problem("alreadyExists", `${vault.name} already has the certificate ${certificate}. Renew it instead.`);
    const { profile, preferredChain } = authority;
    return await completePlan(
      newRecord(
        deps,
        {
          assetId: assetId({ vaultName: vault.name, type: "certificate", name: certificate }),
          vaultName: vault.name,
          vaultId: vault.id,
          certificate,
          kind: "issue",
          method: "acme",
          automatic: false,
          authorityId: authority.authorityId,
          ...(profile !== undefined && { profile }),
          ...(preferredChain !== undefined && { preferredChain }),
          dnsNames,
          key,
          exportable,
          tags: {},
        },
        caller,
      ),
    );
  }

  async function planRenewal(id: string, caller: Caller, automatic = false): Promise<RenewalPlan> {
    const asset = await certificateOf(id);
    const current = await readCertificate(asset.vaultName, asset.name);
    if (current === undefined) throw notFound(`The certificate ${id.slice(0, 300)}`);
    const policy = await tables.get(Policies, POLICIES, policyKey(id));
    if (policy && policy.vaultId.toLowerCase() !== asset.vaultId.toLowerCase())
      throw new Problem("conflict", "The policy is that of a deleted vault with this name. Save the policy again.");
    const authority = policy?.authorityId === undefined ? undefined : await authorities.get(policy.authorityId);
    const isUnknown = /^unknown$/i.test(current.issuerName);
    if (authority === undefined && isUnknown)
      throw new Problem(
        "conflict",
        "The issuer of the certificate is not connected to the key vault. Save a renewal policy that names an authority.",
      );
    const { profile, preferredChain } = authority ?? {};
    const plan = newRecord(
      deps,
      {
        assetId: assetId(asset),
        vaultName: asset.vaultName,
        vaultId: asset.vaultId,
        certificate: asset.name,
        kind: "renew",
        method: authority ? "acme" : "vaultPolicy",
        automatic,
        ...(authority && { authorityId: authority.authorityId, key: policy?.key }),
        ...(profile !== undefined && { profile }),
        ...(preferredChain !== undefined && { preferredChain }),
        dnsNames: namesOf(current, asset),
        exportable: current.exportable,
        tags: current.tags,
        previousVersion: current.version,
      },
      caller,
    );
    return await completePlan(plan);
  }

  async function start({ record, missing }: RenewalPlan, caller: Caller): Promise<Row<RenewalRecord>> {
    if (missing.length > 0) throw new Problem("conflict", missing.join(" "));
    const { runId, assetId: id, authorityId, dnsNames } = record;
    const target = { type: "certificateRenewal", id: runId };
    const details = { assetId: id, authorityId: authorityId ?? null, dnsNames };
    await audited(audit, { type: "certificateRenewal.started", caller, target, details }, async () => {
      try {
        await rows.insert(record);
      } catch (error) {
        if (!(error instanceof UnfinishedRenewal)) throw error;
        throw new Problem("conflict", `The renewal ${error.runId} of this certificate is in progress.`);
      }
    });
    await runner.scheduleNext(record);
    return await get(runId);
  }

  async function get(runId: string): Promise<Row<RenewalRecord>> {
    const id = runId.toUpperCase();
    const row = isUlid(id) ? await rows.get(id) : undefined;
    if (row === undefined) throw notFound(`The renewal ${runId.slice(0, 64)}`);
    return row;
  }

  return {
    planIssue,
    planRenewal: (id, caller) => planRenewal(id, caller),
    start,
    get,

    cancel: async (runId, caller) => await cancel(await get(runId), caller),

    async list(id, request) {
      const filter = id?.toLowerCase();
      return await filteredPage<Row<RenewalRecord>>(request, {
        filters: fingerprint([filter ?? ""]),
        matches: filter === undefined ? undefined : (row) => row.assetId === filter,
        pages: (range) =>
          tables.pages(Renewals, {
            partitionKey: RENEWALS,
            from: RECORD_PREFIX,
            before: "s",
            onCorrupt: "leaveOut",
            ...range,
          }),
      });
    },

    ...policies,

    async revoke(id, { authorityId, version, reason }, caller) {
      const asset = await certificateOf(id);
      const authority = await authorities.get(authorityId);
      const vault = await vaultOf(asset.vaultName);
      const client = vaults.open({ name: vault.name, vaultUri: vault.vaultUri });
      const der = await client.readVersion(asset.name, version).catch(cloudProblem);
      if (der === undefined) throw notFound(`The version ${version} of the certificate ${id.slice(0, 300)}`);
      const serialNumber = serialOf(der);
      const event = {
        type: "certificate.revoked",
        caller,
        target: { type: "asset", id: assetId(asset) },
        details: { authorityId: authority.authorityId, version, serialNumber, reason },
      };
      await audited(audit, event, async () => {
        const account = await authorities.open(authority);
        await account.revoke(pemOf("CERTIFICATE", der), reason).catch(asProblem);
      });
      return { version, serialNumber };
    },

    handle: ({ runId }, requestId) => runner.runDueStep(runId, requestId),

    async runSchedule(requestId) {
      const caller: Caller = { actor: "system", requestId };
      for await (const runIds of rows.listOverdue())
        for (const runId of runIds) await queues.send(QUEUE, { runId } satisfies RenewalMessage);
      if (await deps.licensed()) await startDue({ tables, log, inventory, rows, isDue, planRenewal, start }, caller);
      const { rotationRetentionDays } = await settings.values();
      await rows.deleteEnded(new Date(clock.now().getTime() - rotationRetentionDays * DAY_MS));
      await authorities.cleanUp(caller);
    },
  };
}

const serialOf = (der: Buffer): string => new X509Certificate(der).serialNumber.toLowerCase();

/** Returns the record of a renewal that has not started. */
function newRecord(
  { clock, randomness }: Pick<StepDependencies, "clock" | "randomness">,
  fields: Pick<RenewalRecord, "assetId" | "vaultName" | "vaultId" | "certificate" | "kind" | "method" | "automatic"> &
    Pick<RenewalRecord, "dnsNames" | "exportable" | "tags"> &
    Partial<RenewalRecord>,
  caller: Caller,
): Omit<RenewalRecord, "writeId"> {
  const at = clock.now();
  return {
    ...fields,
    runId: randomness.ulid(at),
    status: "running",
    steps: stepsOf(fields.method),
    challenges: [],
    failures: 0,
    dueAt: at.toISOString(),
    createdAt: at.toISOString(),
    requestedBy: caller.actor,
    requestId: caller.requestId,
  };
}

/** Starts the due renewals of the policies that are automatic. */
async function startDue(
  deps: Pick<StepDependencies, "tables" | "log"> & {
    inventory: Pick<Inventory, "assets" | "moment">;
    rows: Pick<RenewalRows, "unfinishedOf">;
    isDue: ReturnType<typeof createDueCheck>;
    planRenewal: (id: string, caller: Caller, automatic: boolean) => Promise<RenewalPlan>;
    start: CertificateRenewals["start"];
  },
  caller: Caller,
): Promise<void> {
  const { tables, log, inventory, rows, isDue, planRenewal, start } = deps;
  let started = 0;
  const range = { partitionKey: POLICIES, onCorrupt: "leaveOut" as const };
  for await (const policies of tables.pages(Policies, range)) {
    for (const policy of policies.filter(({ automatic }) => automatic)) {
      if (started >= MAX_STARTS) return;
      try {
        if ((await rows.unfinishedOf(policy.assetId)) !== undefined) continue;
        const found = await inventory.assets.get(policy.assetId, await inventory.moment());
        if (!found?.asset.enabled || !(await isDue(policy, found.asset))) continue;
        const plan = await planRenewal(policy.assetId, caller, true);
        // The vault has a newer version than the inventory, by whose dates the certificate is due. A scan corrects that.
        if (plan.record.previousVersion !== found.asset.version) continue;
        if (plan.missing.length > 0) {
          log.warn("A due renewal can't start", { assetId: policy.assetId, missing: plan.missing.join(" ") });
          continue;
        }
        await start(plan, caller);
        started++;
      } catch (error) {
        // The certificate, its vault or its authority can't be used now. The other certificates are renewed.
        if (!(error instanceof Problem || error instanceof StorageCorrupt || error instanceof CloudFailure))
          throw error;
        log.warn("A due renewal can't start", { assetId: policy.assetId, reason: error.message });
      }
    }
  }
}

/** Returns the names of a new version: those of the policy in the vault, or else those of the current version. */
function namesOf({ dnsNames }: VaultCertificate, { subjectAlternativeNames = [] }: AssetRecord): string[] {
  const names = dnsNames.length > 0 ? dnsNames : subjectAlternativeNames.map((name) => name.toLowerCase());
  return [...new Set(names)];
}

/** Converts a failed call to a vault to the problem of a request. */
function cloudProblem(error: unknown): never {
  if (!(error instanceof CloudFailure)) throw error;
  const detail = `${error.message} ${error.remedy}`;
  if (error.unclear || error.code === "throttled")
    throw retryLater("unavailable", detail, error.retryAfterSeconds ?? MINUTE_SECONDS);
  throw new Problem("conflict", detail);
}
