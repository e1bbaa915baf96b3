import { decodeTime } from "ulid";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Moment } from "../inventory/asset-status.ts";
import { type InventoryWriter, VaultBusy } from "../inventory/write.ts";
import type { HolderWriting } from "../inventory/write-holder.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Registration } from "../platform/azure/token-endpoint.ts";
import { licenseRequired } from "../platform/http/admission.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound } from "../platform/http/problem.ts";
import { createDiscoveryRuns, type ListFailure, RunBusy } from "../platform/runs/discovery-runs.ts";
import { waitForRun } from "../platform/runs/wait-for-run.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { createStoredSecrets } from "../secrets/stored-secrets.ts";
import type { NewTenant, TenantChange } from "./api.ts";
import { type TenantReader, type TestedTenant, type TestResult, testTenant } from "./connection-test.ts";
import { changeStatus, discoverTenant } from "./discover.ts";
import { createRegistry, THE_TENANT, tenantTarget } from "./registry.ts";
import { createRemoval } from "./removal.ts";
import {
  B2C_SECRETS,
  LICENCE_NOTICE,
  Notices,
  nextDiscoveryAt,
  type RegisteredTenant,
  type RunRecord,
  runsOf,
  secretUse,
  TENANTS,
} from "./tenant.ts";
import { ownTenant, secretMissing } from "./tenant-problems.ts";

/** Name of the queue. */
export const QUEUE = "b2c-tenants";
/** A message of the queue. Without `runId`: discover the tenant if its discovery is due, or finish its removal. */
export const TenantMessage = z.object({ tenantId: z.string(), runId: z.string().optional() });
export type TenantMessage = z.infer<typeof TenantMessage>;

/** Milliseconds that a request waits for its discovery to end, as the API description says. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes the work if the process of the request crashes. */
const MESSAGE_DELAY_SECONDS = 30;
/** Maximum delay of a message that is requeued because another worker has the run or writes the same rows. */
const MAX_REQUEUE_SECONDS = 60;
/** Time limit of a connection test. Requests that have not ended by then fail. */
const TEST_TIMEOUT_MS = 30 * SECOND_MS;

/** A client secret of a registration, for alerts. Times are ISO 8601. */
interface TenantCredential {
  id: string;
  /** Kind of the credential, as alerts show it. */
  what: string;
  name: string;
  createdAt: string;
  expiresAt: string;
}

/**
 * B2C tenants: other tenants (Azure AD B2C or Entra External ID) that administrators register, and the discovery of their
 * credentials. The endpoints under /b2c, a timer and a queue call it. Without a PRO license no discovery starts, but existing
 * tenants can be read and deleted.
 */
export interface B2c {
  /** Registers a tenant. @throws {Problem} alreadyExists, conflict, unavailable */
  register(given: NewTenant, caller: Caller): Promise<RegisteredTenant>;
  /** Lists tenants by display name. @throws {Problem} invalidCursor; licenseRequired if there is no tenant and no license */
  list(request: PageRequest): Promise<Page<RegisteredTenant>>;
  /** Returns all registered tenants. One request per 1,000 tenants, and one per 1,000 discovery statuses. */
  registered(): Promise<RegisteredTenant[]>;
  /**
   * Returns a tenant with its discovery status.
   *
   * @throws {Problem} notFound; conflict if the row was tampered with; licenseRequired if there is no such tenant and no
   * license
   */
  get(tenantId: string): Promise<RegisteredTenant>;
  /** Changes a registration. @throws {Problem} notFound, conflict, invalidRequest, preconditionFailed, unavailable */
  change(tenantId: string, given: TenantChange, ifMatch: string | undefined, caller: Caller): Promise<RegisteredTenant>;
  /** Removes a tenant with its assets and its secret. @throws {Problem} as `get`; preconditionFailed */
  remove(tenantId: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Tests everything that a discovery reads, with the saved secret. @throws {Problem} notFound, conflict */
  test(tenantId: string, caller: Caller): Promise<TestResult>;
  /** Like `test`, for a tenant that is not registered. The client secret is not saved. */
  testNew(given: TestedTenant & { clientSecret: string }, caller: Caller): Promise<TestResult>;
  /**
   * Discovers a tenant's credentials, and returns the run when it ends or after 20 seconds. If a run is in progress, returns
   * that run and starts no other.
   *
   * @throws {Problem} notFound, conflict
   */
  discover(tenantId: string, caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** Returns a discovery run. @throws {Problem} notFound */
  run(tenantId: string, runId: string): Promise<RunRecord>;
  /** Enqueues the discovery of all tenants that are due, and the rest of interrupted removals. A timer calls it. */
  enqueueDue(): Promise<void>;
  /** Handles a message of the queue. */
  handle(message: TenantMessage, caller: Caller): Promise<void>;
  /** Handles a message whose last delivery failed: its run ends as failed. */
  failed(message: TenantMessage, caller: Caller): Promise<void>;
  /** Returns the client secrets of registrations that expire at this time or before. */
  expiring(latest: Date): AsyncGenerator<TenantCredential>;
  /** Deletes secrets and assets of tenants that are no longer registered. A daily timer calls it. */
  cleanUp(caller: Caller): Promise<void>;
}

/** Creates the registrations of B2C tenants and the discovery of their credentials. */
export function createB2c(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  vault: ServiceKeyVault | undefined;
  /** Creates a Microsoft Graph client for another tenant. */
  graphOf: (registration: Registration) => TenantReader;
  /** The service's own tenant. */
  ownTenantId: () => Promise<string>;
  inventory: Omit<HolderWriting, "confirm"> & { writer: Pick<InventoryWriter, "forget"> };
  /** Returns the current time and the thresholds that decide whether a credential expires soon. */
  moment: () => Promise<Moment>;
  licensed: () => Promise<boolean>;
  /** Called after each discovery, which may have changed assets. */
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Milliseconds that a request waits for its discovery. Tests set it. */
  waitMs?: number;
}): B2c {
  const { tables, queues, audit, clock, log, licensed, waitMs = WAIT_MS } = deps;
  const secrets = createStoredSecrets(B2C_SECRETS, deps);
  const isOwnTenant = async (tenantId: string) => tenantId === (await deps.ownTenantId()).toLowerCase();
  const registry = createRegistry({ ...deps, secrets, isOwnTenant });
  const removal = createRemoval({ ...deps, registry, secrets });
  const runs = (tenantId: string) => createDiscoveryRuns(runsOf(tenantId), deps);

  const send = (message: TenantMessage, delaySeconds: number) => queues.send(QUEUE, message, { delaySeconds });

  async function startRun(tenantId: string, trigger: RunRecord["trigger"], caller: Caller): Promise<RunRecord> {
    const target = tenantTarget(tenantId);
    const event = { type: "b2cTenant.discoveryRequested", caller, target, details: { trigger } };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs(tenantId).start({ trigger, tenantId }, caller);
        // Sends the message even if a run was already in progress, whose own message may be lost. A duplicate message is
        // harmless.
        await send({ tenantId, runId: run.runId }, trigger === "api" ? MESSAGE_DELAY_SECONDS : 0);
        return run;
      },
      (run) => ({ details: { trigger, runId: run.runId } }),
    );
  }

  /** Works on a run until it ends, or until another worker or message continues it. */
  async function continueRun(tenantId: string, runId: string): Promise<void> {
    const row = await registry.find(tenantId);
    if (!row) {
      await failRun({ tenantId, runId }, "removed", "The tenant was removed.", "Nothing to do.");
      return;
    }
    const tenantRuns = runs(tenantId);
    let leasedRun: Awaited<ReturnType<typeof tenantRuns.lease>>;
    try {
      leasedRun = await tenantRuns.lease(runId);
      if (!leasedRun) return;
      await discoverTenant(leasedRun, row, { ...deps, secrets, isOwnTenant });
      await tenantRuns.removeOld();
    } catch (error) {
      await leasedRun?.release();
      throw error;
    }
  }

  async function failRun(
    { tenantId, runId }: { tenantId: string; runId: string },
    code: string,
    message: string,
    remedy: string,
  ): Promise<void> {
    const failure: ListFailure = { list: "signIn", code, message, remedy, at: clock.now().toISOString() };
    const run = await runs(tenantId).fail(runId, failure);
    // The status of a removed tenant is deleted with it.
    if (!run || code === "removed") return;
    await changeStatus(run, deps, ({ runId: _, ...status }) => ({
      ...status,
      ended: "failed",
      failures: run.failures,
    }));
  }

  const isDue = (tenant: RegisteredTenant): boolean => {
    const next = nextDiscoveryAt(tenant);
    return next !== undefined && next <= clock.now().toISOString();
  };

  /**
   * Handles a message without a run: finishes a removal, or starts a discovery if it is due. A message can be delivered twice.
   */
  async function discoverIfDue(tenantId: string, caller: Caller): Promise<void> {
    const { row } = await registry.readRow(tenantId);
    if (row?.removing) return await removal.finish(tenantId);
    if (!row || !(await licensed())) return;
    if (isDue(await registry.get(tenantId))) await startRun(row.tenantId, "schedule", caller);
  }

  async function logUnlicensed(): Promise<void> {
    log.warn("B2C discovery skipped: no PRO license");
    const day = clock.now().toISOString().slice(0, 10);
    if ((await tables.get(Notices, TENANTS, LICENCE_NOTICE))?.day === day) return;
    await audit.append({
      type: "b2cTenant.unlicensed",
      caller: { actor: "system", requestId: "b2c" },
      outcome: "refused",
      target: { type: "timer", id: "discoverDueTenants" },
    });
    await tables.put(Notices, TENANTS, LICENCE_NOTICE, { day });
  }

  /**
   * Tests a tenant and records it in the audit log. Without a client secret or for the service's own tenant, sends no request.
   */
  async function runTest(tenant: TestedTenant, clientSecret: string | undefined, caller: Caller): Promise<TestResult> {
    const result = await resultOf();
    const failed = result.checks.flatMap(({ name, finding }) => (finding ? `${name}: ${finding.code}` : []));
    await audit.append({
      type: "b2cTenant.tested",
      caller,
      target: tenantTarget(tenant.tenantId),
      outcome: failed.length === 0 ? "success" : "failure",
      details: { failed },
    });
    return result;

    async function resultOf(): Promise<TestResult> {
      const { tenantId, clientId } = tenant;
      if (clientSecret === undefined)
        return { checks: [{ name: "signIn", outcome: "failed", finding: secretMissing }] };
      if (await isOwnTenant(tenantId)) return { checks: [{ name: "tenant", outcome: "failed", finding: ownTenant }] };
      const graph = deps.graphOf({ tenantId, clientId, clientSecret });
      return await testTenant(tenant, graph, AbortSignal.timeout(TEST_TIMEOUT_MS));
    }
  }

  return {
    register: registry.register,
    change: registry.change,
    registered: registry.registered,

    async list(request) {
      const tenants = await registry.registered();
      if (tenants.length === 0 && !(await licensed())) throw licenseRequired();
      return pageOfAll(tenants, request, ({ row }) => `${row.displayName.toLowerCase()}\n${row.tenantId}`);
    },

    async get(tenantId) {
      if (!(await registry.find(tenantId)) && !(await licensed())) throw licenseRequired();
      return await registry.get(tenantId);
    },

    async remove(tenantId, ifMatch, caller) {
      const { row, broken } = await registry.readRow(tenantId);
      if (!row && !broken && !(await licensed())) throw licenseRequired();
      await removal.remove(tenantId, ifMatch, caller, (id) => send({ tenantId: id }, MESSAGE_DELAY_SECONDS));
    },

    async test(tenantId, caller) {
      const { row } = await registry.get(tenantId);
      return await runTest(row, await secrets.read(row.clientSecret, secretUse(row)), caller);
    },

    testNew: ({ clientSecret, ...tenant }, caller) => runTest(tenant, clientSecret, caller),

    async discover(given, caller) {
      const { row } = await registry.get(given);
      const { tenantId } = row;
      const activeRun = await runs(tenantId).active();
      const { runId } = activeRun ?? (await startRun(tenantId, "api", caller));
      await waitForRun(continueRun(tenantId, runId), { runId, timeLimit: AbortSignal.timeout(waitMs), log });
      return { run: await runs(tenantId).get(runId), isNew: activeRun === undefined };
    },

    async run(given, runId) {
      const tenantId = given.toLowerCase();
      if (!(await registry.find(tenantId))) throw notFound(`${THE_TENANT} ${given.slice(0, 64)}`);
      return await runs(tenantId).get(runId);
    },

    async enqueueDue() {
      const tenants = await registry.all();
      for (const { row } of tenants) if (row.removing) await send({ tenantId: row.tenantId }, 0);
      const due = tenants.filter((tenant) => !tenant.row.removing && isDue(tenant));
      if (due.length === 0) return;
      if (!(await licensed())) return await logUnlicensed();
      for (const { row } of due) await send({ tenantId: row.tenantId }, 0);
    },

    async handle({ tenantId, runId }, caller) {
      try {
        if (runId === undefined) await discoverIfDue(tenantId, caller);
        else await continueRun(tenantId, runId);
      } catch (error) {
        // Another worker has the run or writes the same rows. The message is sent again, because waiting must not count as a
        // failed delivery.
        const waitMs =
          error instanceof RunBusy || error instanceof VaultBusy
            ? error.waitMs
            : isConflict(error)
              ? SECOND_MS
              : undefined;
        if (waitMs === undefined) throw error;
        const delaySeconds = Math.min(MAX_REQUEUE_SECONDS, Math.max(1, Math.ceil(waitMs / SECOND_MS)));
        await send({ tenantId, ...(runId === undefined ? {} : { runId }) }, delaySeconds);
      }
    },

    async failed({ tenantId, runId }, caller) {
      log.error("A message of a B2C tenant failed in all deliveries", { tenantId, runId });
      if (runId === undefined) return;
      await failRun(
        { tenantId, runId },
        "internal",
        "The tenant's credentials could not be written in five attempts.",
        "See GET /system/failed-messages and the log. The next discovery retries it.",
      );
      await audit.append({
        type: "b2cTenant.discovered",
        caller,
        outcome: "failure",
        target: tenantTarget(tenantId),
        details: { runId, status: "failed", failures: ["signIn: internal"] },
      });
    },

    async *expiring(latest) {
      const currentTime = clock.now().toISOString();
      const registrations = await registry.all();
      for (const { row, status } of registrations.filter(({ row }) => !row.removing)) {
        // The tenant's date applies only if the registration still uses the secret for which it was found.
        const expiryFromTenant = status.secretEnds?.of === row.clientSecret.id ? status.secretEnds.at : undefined;
        const expiresAt = row.clientSecretExpiresOn ?? expiryFromTenant;
        if (expiresAt === undefined || expiresAt <= currentTime || Date.parse(expiresAt) > latest.getTime()) continue;
        // The ID of a stored secret starts with a ULID, which contains its creation time.
        const createdAt = new Date(decodeTime(row.clientSecret.id.split("-")[0]!)).toISOString();
        const what = "Client secret of a B2C tenant";
        yield { id: `b2c.${row.clientSecret.id}`, what, name: row.displayName, createdAt, expiresAt };
      }
    },

    async cleanUp(caller) {
      await removal.sweep();
      const used = await registry.usedSecrets();
      // The secret of a tampered registration is unknown, and is needed again if the row is restored.
      if (used) await secrets.cleanUp(used, caller);
    },
  };
}
