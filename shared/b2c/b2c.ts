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
import { type TenantReader, type TestResult, testTenant } from "./connection-test.ts";
import { changeStatus, discoverTenant } from "./discover.ts";
import { createRegistry, THE_TENANT, tenantTarget } from "./registry.ts";
import { createRemoval } from "./removal.ts";
import {
  B2C_SECRETS,
  type FoundTenant,
  LICENCE_NOTICE,
  Notices,
  nextDiscoveryAt,
  type RunRecord,
  runsOf,
  secretUse,
  TENANTS,
} from "./tenant.ts";
import { ownTenant, secretMissing } from "./tenant-problems.ts";

/** Name of the queue. */
export const QUEUE = "b2c-tenants";
/** A message of the queue. Without `run`: discover the tenant if it is due, or finish its removal. */
export const TenantMessage = z.object({ tenantId: z.string(), runId: z.string().optional() });
export type TenantMessage = z.infer<typeof TenantMessage>;

/** Milliseconds that a request waits for its discovery to end, as the API description says. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes the work if the process of the request crashes. */
const MESSAGE_DELAY_SECONDS = 30;
const LONGEST_BUSY_SECONDS = 60;
/** Time limit of a connection test. Steps that are not done by then are reported as not done. */
const TEST_MS = 30 * SECOND_MS;

/** A client secret of a registration, for alerts. Times are ISO 8601. */
interface TenantCredential {
  id: string;
  what: string;
  name: string;
  createdAt: string;
  expiresAt: string;
}

/**
 * The registry of tenants (Azure AD B2C and external tenants), and the discovery of their credentials. Without a PRO license
 * nothing new starts, but existing tenants can be read and deleted.
 */
export interface B2c {
  /** Registers a tenant. @throws {Problem} alreadyExists, conflict, unavailable */
  register(given: NewTenant, caller: Caller): Promise<FoundTenant>;
  /** Lists tenants by display name. @throws {Problem} invalidCursor; licenseRequired if there is no tenant and no license */
  list(request: PageRequest): Promise<Page<FoundTenant>>;
  /**
   * @throws {Problem} notFound; conflict if the row was tampered with; licenseRequired if there is no such tenant and no
   * license
   */
  get(tenantId: string): Promise<FoundTenant>;
  /** @throws {Problem} notFound, conflict, invalidRequest, preconditionFailed, unavailable */
  change(tenantId: string, given: TenantChange, ifMatch: string | undefined, caller: Caller): Promise<FoundTenant>;
  /** Removes a tenant with its assets and its secret. @throws {Problem} as `get`; preconditionFailed */
  remove(tenantId: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Tests everything that a discovery reads, with the saved secret. @throws {Problem} notFound, conflict */
  test(tenantId: string, caller: Caller): Promise<TestResult>;
  /**
   * Discovers a tenant's credentials, and returns the run when it ends or after 20 seconds. If a run is in progress, returns
   * that run and starts no other.
   *
   * @throws {Problem} notFound, conflict
   */
  discover(tenantId: string, caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** @throws {Problem} notFound */
  run(tenantId: string, runId: string): Promise<RunRecord>;
  /** Enqueues the discovery of all tenants that are due. */
  tick(): Promise<void>;
  /** Handles a message of the queue. */
  handle(message: TenantMessage, caller: Caller): Promise<void>;
  /** Handles a message that failed for good: its run fails. */
  failed(message: TenantMessage, caller: Caller): Promise<void>;
  /** Returns the client secrets of registrations that expire by a time. */
  expiring(by: Date): AsyncGenerator<TenantCredential>;
  /** Deletes secrets and assets of tenants that are no longer registered. A daily timer calls it. */
  cleanUp(caller: Caller): Promise<void>;
}

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
  moment: () => Promise<Moment>;
  licensed: () => Promise<boolean>;
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Milliseconds that a request waits for its discovery. Tests set it. */
  waitMs?: number;
}): B2c {
  const { tables, queues, audit, clock, log, licensed } = deps;
  const secrets = createStoredSecrets(B2C_SECRETS, deps);
  const isOwn = async (tenantId: string) => tenantId === (await deps.ownTenantId()).toLowerCase();
  const registry = createRegistry({ ...deps, secrets, isOwn });
  const removal = createRemoval({ ...deps, registry, secrets });
  const runs = (tenantId: string) => createDiscoveryRuns(runsOf(tenantId), deps);

  const send = (message: TenantMessage, delaySeconds: number) => queues.send(QUEUE, message, { delaySeconds });

  async function begin(tenantId: string, trigger: RunRecord["trigger"], caller: Caller): Promise<RunRecord> {
    const event = {
      type: "b2cTenant.discoveryRequested",
      caller,
      target: tenantTarget(tenantId),
      details: { trigger },
    };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs(tenantId).start({ trigger, tenantId }, caller);
        // If a run is in progress, its message may be lost. A duplicate message is harmless.
        await send({ tenantId, runId: run.runId }, trigger === "api" ? MESSAGE_DELAY_SECONDS : 0);
        return run;
      },
      (run) => ({ details: { trigger, runId: run.runId } }),
    );
  }

  /** Works on a run until it ends, or until another worker or message continues it. */
  async function work(tenantId: string, runId: string): Promise<void> {
    const row = await registry.find(tenantId);
    if (!row) {
      await giveUp({ tenantId, runId }, "removed", "The tenant was removed.", "Nothing to do.");
      return;
    }
    const own = runs(tenantId);
    let held: Awaited<ReturnType<typeof own.lease>>;
    try {
      held = await own.lease(runId);
      if (!held) return;
      await discoverTenant(held, row, { ...deps, secrets, isOwn });
      await own.removeOld();
    } catch (error) {
      await held?.release();
      throw error;
    }
  }

  async function giveUp(
    { tenantId, runId }: { tenantId: string; runId: string },
    code: string,
    message: string,
    remedy: string,
  ): Promise<void> {
    const failure: ListFailure = { list: "signIn", code, message, remedy, at: clock.now().toISOString() };
    const run = await runs(tenantId).fail(runId, failure);
    if (!run || code === "removed") return;
    await changeStatus(run, deps, ({ runId: _, ...known }) => ({ ...known, ended: "failed", failures: run.failures }));
  }

  const isDue = (found: FoundTenant): boolean => {
    const next = nextDiscoveryAt(found);
    return next !== undefined && next <= clock.now().toISOString();
  };

  /** Handles a message without a run. Checks the state again, because a message can arrive twice. */
  async function takeUp(tenantId: string, caller: Caller): Promise<void> {
    const { row } = await registry.look(tenantId);
    if (row?.removing) return await removal.finish(tenantId);
    if (!row || !(await licensed())) return;
    if (isDue(await registry.get(tenantId))) await begin(row.tenantId, "schedule", caller);
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

  return {
    register: registry.register,
    change: registry.change,

    async list(request) {
      const found = (await registry.all()).filter(({ row }) => !row.removing);
      if (found.length === 0 && !(await licensed())) throw licenseRequired();
      return pageOfAll(found, request, ({ row }) => `${row.displayName.toLowerCase()}\n${row.tenantId}`);
    },

    async get(tenantId) {
      if (!(await registry.find(tenantId)) && !(await licensed())) throw licenseRequired();
      return await registry.get(tenantId);
    },

    async remove(tenantId, ifMatch, caller) {
      const { row, broken } = await registry.look(tenantId);
      if (!row && !broken && !(await licensed())) throw licenseRequired();
      await removal.remove(tenantId, ifMatch, caller, (id) => send({ tenantId: id }, MESSAGE_DELAY_SECONDS));
    },

    async test(tenantId, caller) {
      const { row } = await registry.get(tenantId);
      const secret = await secrets.read(row.clientSecret, secretUse(row));
      const result = await tried(row.tenantId, row.clientId, secret);
      const failed = result.checks.flatMap(({ name, finding }) => (finding ? `${name}: ${finding.code}` : []));
      await audit.append({
        type: "b2cTenant.tested",
        caller,
        target: tenantTarget(row.tenantId),
        outcome: failed.length === 0 ? "success" : "failure",
        details: { failed },
      });
      return result;

      async function tried(id: string, clientId: string, clientSecret: string | undefined): Promise<TestResult> {
        if (clientSecret === undefined)
          return { checks: [{ name: "signIn", outcome: "failed", finding: secretMissing }] };
        if (await isOwn(id)) return { checks: [{ name: "tenant", outcome: "failed", finding: ownTenant }] };
        const graph = deps.graphOf({ tenantId: id, clientId, clientSecret });
        return await testTenant(row, graph, AbortSignal.timeout(TEST_MS));
      }
    },

    async discover(given, caller) {
      const { row } = await registry.get(given);
      const { tenantId } = row;
      const under = await runs(tenantId).active();
      const { runId } = under ?? (await begin(tenantId, "api", caller));
      await waitForRun(work(tenantId, runId), { runId, late: AbortSignal.timeout(deps.waitMs ?? WAIT_MS), log });
      return { run: await runs(tenantId).get(runId), isNew: under === undefined };
    },

    async run(given, runId) {
      const tenantId = given.toLowerCase();
      if (!(await registry.find(tenantId))) throw notFound(`${THE_TENANT} ${given.slice(0, 64)}`);
      return await runs(tenantId).get(runId);
    },

    async tick() {
      const all = await registry.all();
      for (const { row } of all) if (row.removing) await send({ tenantId: row.tenantId }, 0);
      const due = all.filter((found) => !found.row.removing && isDue(found));
      if (due.length === 0) return;
      if (!(await licensed())) return await logUnlicensed();
      for (const { row } of due) await send({ tenantId: row.tenantId }, 0);
    },

    async handle({ tenantId, runId }, caller) {
      try {
        if (runId === undefined) await takeUp(tenantId, caller);
        else await work(tenantId, runId);
      } catch (error) {
        // Another worker has the run or writes the same rows. Requeue: waiting must not count as a failed delivery.
        const waitMs =
          error instanceof RunBusy || error instanceof VaultBusy
            ? error.waitMs
            : isConflict(error)
              ? SECOND_MS
              : undefined;
        if (waitMs === undefined) throw error;
        const delaySeconds = Math.min(LONGEST_BUSY_SECONDS, Math.max(1, Math.ceil(waitMs / SECOND_MS)));
        await send({ tenantId, ...(runId === undefined ? {} : { runId }) }, delaySeconds);
      }
    },

    async failed({ tenantId, runId }, caller) {
      log.error("The work on a B2C tenant failed for good", { tenantId, runId });
      if (runId === undefined) return;
      await giveUp(
        { tenantId, runId },
        "internal",
        "The tenant's credentials could not be written, in five tries.",
        "Look at GET /system/failed-messages and at the log; the next discovery tries it again.",
      );
      await audit.append({
        type: "b2cTenant.discovered",
        caller,
        outcome: "failure",
        target: tenantTarget(tenantId),
        details: { runId, status: "failed", failures: ["signIn: internal"] },
      });
    },

    async *expiring(by) {
      const now = clock.now().toISOString();
      for (const { row, status } of await registry.all()) {
        const known = status.secretEnds?.of === row.clientSecret.id ? status.secretEnds.at : undefined;
        const expiresAt = row.clientSecretExpiresOn ?? known;
        if (row.removing || expiresAt === undefined || expiresAt <= now || Date.parse(expiresAt) > by.getTime())
          continue;
        const createdAt = new Date(decodeTime(row.clientSecret.id.split("-")[0]!)).toISOString();
        const what = "Client secret of a B2C tenant";
        yield { id: `b2c.${row.clientSecret.id}`, what, name: row.displayName, createdAt, expiresAt };
      }
    },

    async cleanUp(caller) {
      await removal.sweep();
      const used = (await registry.all()).map(({ row }) => row.clientSecret);
      await secrets.cleanUp(used, caller);
    },
  };
}
