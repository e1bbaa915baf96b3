import { setTimeout as delay } from "node:timers/promises";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { DiscoveredHost } from "../certificates/discovered-endpoints.ts";
import {
  type AssetLocation,
  type AssetRecord,
  type AssetType,
  assetId,
  locationsOf,
  sourceOf,
} from "../inventory/asset.ts";
import type { Moment } from "../inventory/asset-status.ts";
import type { AssetQueries, FoundAsset } from "../inventory/query.ts";
import { statusOfAsset } from "../inventory/renewal.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import { createRunStore, isOver } from "../platform/runs/run-store.ts";
import { waitForRun } from "../platform/runs/wait-for-run.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type Consumer, consumersOf, type Driver, scoreAndDrivers } from "./blast-radius.ts";
import { type CertificateUse, certificateUses } from "./certificate-uses.ts";
import { type AssetConsumer, consumersOfAssets } from "./consumers-of-assets.ts";
import { type Coverage, coveragePage, readUnits } from "./coverage.ts";
import { applicationVaultName } from "./edge.ts";
import type { EdgeSource } from "./edge-source.ts";
import { type IncompleteReason, incompleteReason, undetectableCoverage, undetectableOf } from "./incomplete.ts";
import type { AssetUsage, Usage } from "./logs/usage.ts";
import { type EdgeFilter, type FoundEdge, listEdges, withSeenAt } from "./query.ts";
import { createReferences, type References } from "./references.ts";
import {
  assetPrefix,
  Edges,
  type NotSeenRecord,
  RUNS,
  type RunRecord,
  Runs,
  rangeOf,
  type UnitRecord,
} from "./rows.ts";
import { failRun, QUEUE, type WorkDeps, workOnRun } from "./run-work.ts";
import { servedHosts } from "./served-hosts.ts";

export { QUEUE } from "./run-work.ts";
/** Queue message that starts or continues a discovery run. */
export const DiscoverMessage = z.object({
  /** The run to continue. Without it, the message starts a scheduled run. */
  runId: z.string().optional(),
  mode: z.enum(["full", "changes"]).optional(),
});
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** Maximum wait of a request for its run. Part of the documented behavior. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that finishes a run if the request's process does not. */
const MESSAGE_DELAY_SECONDS = 30;
/** Interval at which a waiting request checks its run. */
const POLL_MS = SECOND_MS / 2;
/** Maximum number of coverage items in a list of dependencies. */
const COVERAGE_ITEMS = 20;
/**
 * Maximum number of dependencies that are read of an asset (of a certificate also for its key and its secret), and again of its
 * whole vault. The page of 1,000 rows that reaches the number is returned whole. The result says if there may be more.
 */
const MAX_EDGES = 2000;

/** The blast radius of an asset: a score of how much its rotation affects, and the consumers from which the score follows. */
export interface BlastRadius {
  asset: FoundAsset;
  assetId: string;
  score: number;
  drivers: Driver[];
  /** Heaviest first. */
  consumers: Consumer[];
  /** Whether more dependencies exist than were read. The score is then a lower bound. */
  more: boolean;
  /** Why consumers may be missing. Undefined if discovery read everything that it can read. */
  incompleteReason: IncompleteReason | undefined;
  coverage: Coverage;
}

/**
 * Dependencies: which resources (consumers) use which secrets, keys and certificates (assets). Starts discovery runs, which
 * read the consumers from several sources, and answers queries.
 */
export interface Dependencies {
  /** Starts a full run, and returns it when it ends or after 20 seconds. If a run is in progress, returns that run instead. */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** Returns a run. @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /** Handles a message of the queue. */
  handle(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Handles a message that failed permanently. */
  failed(message: DiscoverMessage): Promise<void>;
  /**
   * Lists dependencies by vault, type and name, with the first coverage items. Makes one request per 1,000 units (such as
   * subscriptions), one for the coverage, and one for each page (up to ten for a filter without an index).
   *
   * @throws {Problem} invalidCursor
   */
  list(filter: EdgeFilter, request: PageRequest): Promise<{ page: Page<FoundEdge>; coverage: Coverage }>;
  /** Lists everything that could not be read. @throws {Problem} invalidCursor */
  coverage(request: PageRequest): Promise<Page<NotSeenRecord> & Pick<Coverage, "lastFullAt">>;
  /**
   * Returns the blast radius of an asset.
   *
   * @throws {Problem} notFound if the inventory has no such asset; serviceVault if it is in the service's own key vault.
   */
  blastRadius(id: string): Promise<BlastRadius>;
  /**
   * Returns the logged readers of an asset, and the last sign-in of an application's credential.
   *
   * @throws {Problem} as `blastRadius`
   */
  usage(id: string): Promise<{ assetId: string; usage: AssetUsage; lastSignIn: Date | undefined }>;
  /**
   * Returns the dependencies of an asset and of its whole vault. Makes one request per 1,000 units, and at most two full
   * pages (`MAX_EDGES`) for the vault and for the asset, for a certificate also for its key and its secret.
   */
  edgesOf(asset: AssetLocation): Promise<{ edges: FoundEdge[]; more: boolean }>;
  /**
   * Returns the uses of certificates by lower-case `<vault>/<name>`, of one vault or of all. Undefined before the first
   * complete run. Makes one request per 1,000 dependencies, and one per 1,000 units.
   */
  certificateUses(vaultName: string | undefined): Promise<Map<string, CertificateUse> | undefined>;
  /** Returns the consumers of the assets of one vault or of all, as `certificateUses`. */
  consumersOfAssets(vaultName: string | undefined): Promise<AsyncGenerator<AssetConsumer> | undefined>;
  /**
   * Returns the host names at which consumers serve certificates of key vaults. Makes one request per 1,000 dependencies. A secret
   * with the name of a certificate is the certificate with its key.
   */
  servedHosts(): Promise<DiscoveredHost[]>;
  /** The references to vaults in the configuration of resources, for compliance and alerts. */
  readonly references: Pick<References, "ofVault" | "unresolved">;
}

export function createDependencies(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  sources: readonly EdgeSource[];
  /** Reads and sign-ins from logs. */
  usage: Pick<Usage, "ofAsset" | "lastSignIn">;
  /** `moment` returns the current time and the thresholds that decide whether an asset expires soon. */
  inventory: { assets: Pick<AssetQueries, "get">; moment(): Promise<Moment> };
  /**
   * Returns the vault secrets that certainly store this client secret. Left out, only consumers of the application itself are
   * found. @throws {CloudFailure}
   */
  secretsStoring?: (credential: { appId: string; keyId: string }) => Promise<AssetLocation[]>;
  /** Requests a compliance evaluation of these assets of a vault (`<type>.<name>`). */
  referencesChanged: (vaultName: string, assets: string[]) => Promise<void>;
  /** Called before a run ends, again after a crash. `mayHaveChanged`: whether dependencies may have changed. */
  ended: (run: { mayHaveChanged: boolean }) => Promise<void>;
  /** Returns whether there is a PRO license. Without one no run starts. */
  licensed: () => Promise<boolean>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Milliseconds that a request waits for its run. For tests. */
  waitMs?: number;
}): Dependencies {
  const { tables, queues, audit, inventory, clock, log, waitMs = WAIT_MS } = deps;
  const runs = createRunStore({ runs: Runs, partitionKey: RUNS }, deps, "run");
  const references = createReferences({ tables, changed: deps.referencesChanged, clock });
  const workDeps: WorkDeps = {
    ...deps,
    isServiceVault: (vaultName) => isServiceVault(deps.config, vaultName),
    runs,
    references,
  };

  /** Returns whether a complete run has ended, of any unit. */
  async function areConsumersKnown(): Promise<boolean> {
    const units = [...(await readUnits(tables)).values()];
    return units.some(({ lastFullAt }) => lastFullAt !== undefined);
  }

  /** Starts a run, or returns the one in progress, and sends the message that works on it. */
  async function startRun(request: Pick<RunRecord, "mode" | "trigger">, caller: Caller): Promise<RunRecord> {
    const event = { type: "dependencies.discoveryRequested", caller, details: { ...request } };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs.start({ ...request, status: "queued", failures: [] }, caller);
        // Sends a message also for a run that is already in progress, because its message may be lost. A duplicate does no
        // harm.
        await queues.send(
          QUEUE,
          { runId: run.runId },
          { delaySeconds: request.trigger === "api" ? MESSAGE_DELAY_SECONDS : 0 },
        );
        return run;
      },
      (run) => ({ details: { ...event.details, runId: run.runId } }),
    );
  }

  async function startScheduledRun(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    if (await deps.licensed()) {
      const run = await startRun({ mode, trigger: "schedule" }, caller);
      log.info("Dependencies will be read", { runId: run.runId, mode: run.mode });
      return;
    }
    log.info("Dependency discovery skipped: no PRO license", { mode });
    // A run that started under a license is finished without one.
    const activeRun = await runs.active();
    if (activeRun) await queues.send(QUEUE, { runId: activeRun.runId });
    // The audit log records only skipped full runs, which are scheduled once a week.
    if (mode !== "full") return;
    const details = { mode, reason: "licenseRequired" };
    await audit.append({ type: "dependencies.discovered", caller, outcome: "refused", details });
  }

  async function firstCoverageItems(units: ReadonlyMap<string, UnitRecord>): Promise<Coverage> {
    const page = await coveragePage(units, { limit: COVERAGE_ITEMS, offset: 0, cursor: undefined }, tables);
    return { items: page.items, total: page.total ?? 0, lastFullAt: page.lastFullAt };
  }

  /** Returns the first dependencies with a key prefix. */
  async function edgesUnder(prefix: string, units: ReadonlyMap<string, UnitRecord>) {
    const edges: FoundEdge[] = [];
    let unreadable = 0;
    const onCorrupt = (row: StorageCorrupt) => {
      countLeftOut(row);
      unreadable++;
    };
    for await (const rows of tables.pages(Edges, { ...rangeOf(prefix), onCorrupt })) {
      edges.push(...rows.map((row) => withSeenAt(withoutKeys(row), units)));
      if (edges.length >= MAX_EDGES) break;
    }
    // An unreadable row counts as a further dependency, because a rotation must not treat it as none.
    return { edges, more: unreadable > 0 || edges.length >= MAX_EDGES };
  }

  /** Returns the dependencies of an asset and of its whole vault. */
  async function edgesOf({ vaultName, type, name }: AssetLocation, units: ReadonlyMap<string, UnitRecord>) {
    // Consumers of a certificate may reference the key or secret behind it.
    const types: AssetType[] = type === "certificate" ? ["certificate", "key", "secret"] : [type];
    const [underVault, ...underAsset] = await Promise.all([
      edgesUnder(assetPrefix(vaultName), units),
      ...types.map((assetType) => edgesUnder(assetPrefix(vaultName, assetType, name), units)),
    ]);
    // A dependency on a whole vault has a type if the identity may read only the assets of that type.
    const ofVault = underVault.edges.filter(({ edge }) => edge.type === undefined || types.includes(edge.type));
    return {
      edges: [...underAsset.flatMap(({ edges }) => edges), ...ofVault],
      more: [underVault, ...underAsset].some(({ more }) => more),
    };
  }

  /** Returns the asset with this ID. For the secret or key behind a certificate, returns the certificate. */
  async function assetOf(id: string, moment: Moment): Promise<FoundAsset> {
    const asset = await inventory.assets.get(id, moment);
    if (asset) return requireForeignAsset(asset, id);
    const [parsed] = locationsOf(id);
    const certificateId = parsed && parsed.type !== "certificate" && assetId({ ...parsed, type: "certificate" });
    const certificate = certificateId ? await inventory.assets.get(certificateId, moment) : undefined;
    return requireForeignAsset(certificate, id);
  }

  /**
   * Returns the asset if it is foreign: not in the service's own key vault.
   *
   * @throws {Problem} notFound if the asset is undefined, serviceVault if it is in the service's own key vault.
   */
  function requireForeignAsset(asset: FoundAsset | undefined, id: string): FoundAsset {
    if (!asset) throw notFound(`The asset ${id.slice(0, 300)}`);
    if (!isServiceVault(deps.config, asset.asset.vaultName)) return asset;
    throw new Problem("serviceVault", "Only the service itself uses the secrets in its own key vault.");
  }

  /**
   * Returns the other names under which consumers of a client secret are stored: its application, for consumers with a copy of
   * any of its secrets, and the vault secrets that store it. Returns none for other assets.
   */
  async function aliasesOf(asset: AssetRecord): Promise<{ aliases: AssetLocation[]; notSeen?: NotSeenRecord }> {
    const { tenantId, appId, keyId } = asset.credential ?? {};
    if (sourceOf(asset) !== "entra" || asset.type !== "secret") return { aliases: [] };
    if (tenantId === undefined || appId === undefined || keyId === undefined) return { aliases: [] };
    const application = { vaultName: applicationVaultName(tenantId), type: "secret", name: appId } as const;
    try {
      const vaultSecrets = await deps.secretsStoring?.({ appId, keyId });
      return { aliases: [application, ...(vaultSecrets ?? [])] };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      // No run has stored this item, so it names what the failed call read: the tenant.
      const unit = { source: "azure", unit: tenantId, since: clock.now().toISOString() };
      return {
        aliases: [application],
        notSeen: { scope: `the application ${appId}`, code, message, remedy, ...unit },
      };
    }
  }

  return {
    references,
    run: (runId) => runs.get(runId),

    async discover(caller) {
      const activeRun = await runs.active();
      const { runId } = await startRun({ mode: "full", trigger: "api" }, caller);
      const timeLimit = AbortSignal.timeout(waitMs);
      // Works on the run in this process. `false`: no queue message is handled here, `startRun` has sent one.
      await waitForRun(workOnRun(runId, false, workDeps), { runId, timeLimit, log });
      let run = await runs.get(runId);
      // Workers of the queue may still read the last units.
      for (; !isOver(run) && !timeLimit.aborted; run = await runs.get(runId)) await delay(POLL_MS);
      return { run, isNew: activeRun?.runId !== runId };
    },

    async handle({ runId, mode = "full" }, caller) {
      if (runId === undefined) await startScheduledRun(mode, caller);
      else await workOnRun(runId, true, workDeps);
    },

    async failed({ runId }) {
      if (runId !== undefined) await failRun(runId, workDeps);
    },

    async list(filter, request) {
      const units = await readUnits(tables);
      const [page, coverage] = await Promise.all([
        listEdges(filter, request, units, tables),
        firstCoverageItems(units),
      ]);
      return { page, coverage };
    },

    coverage: async (request) => await coveragePage(await readUnits(tables), request, tables),

    edgesOf: async (asset) => await edgesOf(asset, await readUnits(tables)),

    certificateUses: async (vaultName) =>
      (await areConsumersKnown()) ? await certificateUses(tables, vaultName) : undefined,

    consumersOfAssets: async (vaultName) =>
      (await areConsumersKnown()) ? consumersOfAssets(tables, vaultName) : undefined,

    servedHosts: () => servedHosts(tables),

    async usage(id) {
      const { asset } = await assetOf(id, await inventory.moment());
      const { appId, keyId } = asset.credential ?? {};
      const [usage, lastSignIn] = await Promise.all([
        deps.usage.ofAsset(asset),
        appId !== undefined && keyId !== undefined ? deps.usage.lastSignIn({ appId, keyId }) : undefined,
      ]);
      return { assetId: assetId(asset), usage, lastSignIn };
    },

    async blastRadius(id) {
      const moment = await inventory.moment();
      const asset = await assetOf(id, moment);
      // Set for an asset whose consumers no source can find: a B2C credential, or a certificate of an application.
      const undetectable = undetectableOf(asset.asset);
      const units = await readUnits(tables);
      const [coverage, { aliases, notSeen }] = await Promise.all([
        undetectable ? undetectableCoverage(assetId(asset.asset), undetectable) : firstCoverageItems(units),
        aliasesOf(asset.asset),
      ]);
      if (notSeen) {
        coverage.items.unshift(notSeen);
        coverage.total++;
      }
      const results = await Promise.all([asset.asset, ...aliases].map((one) => edgesOf(one, units)));
      const more = results.some((result) => result.more);
      const consumers = consumersOf(results.flatMap(({ edges }) => edges));
      const expiring = statusOfAsset(asset.asset, moment) !== "healthy";
      return {
        asset,
        assetId: assetId(asset.asset),
        ...scoreAndDrivers(consumers, expiring),
        consumers,
        more,
        incompleteReason: undetectable ? "undetectable" : incompleteReason(coverage, more),
        coverage,
      };
    },
  };
}
