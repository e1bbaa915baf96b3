import { setTimeout as delay } from "node:timers/promises";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { type AssetPlace, type AssetRecord, type AssetType, assetId, placesOf, sourceOf } from "../inventory/asset.ts";
import { type Moment, statusOf } from "../inventory/health.ts";
import type { AssetQueries, FoundAsset } from "../inventory/query.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import { isOver } from "../platform/runs/run-store.ts";
import { waitForRun } from "../platform/runs/wait-for-run.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type Consumer, consumersOf, type Driver, scoreAndDrivers } from "./blast-radius.ts";
import { allUnits, type Coverage, coveragePage } from "./coverage.ts";
import { applicationHolder } from "./edge.ts";
import type { AssetUsage, Usage } from "./logs/usage.ts";
import { type EdgeFilter, type FoundEdge, listEdges, seenEdge } from "./query.ts";
import { createReferences, type References } from "./references.ts";
import { assetPrefix, Edges, type NotSeenRecord, type RunRecord, rangeOf, type UnitRecord } from "./rows.ts";
import { createRuns } from "./runs.ts";
import type { EdgeSource } from "./source.ts";
import { createRunWork, QUEUE } from "./work.ts";

export { QUEUE } from "./work.ts";
export const DiscoverMessage = z.object({
  /** Absent: a scheduled one, which is to begin. */
  runId: z.string().optional(),
  mode: z.enum(["full", "changes"]).optional(),
});
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** A request waits so long for its run to end: the contract's figure. */
const WAIT_MS = 20 * SECOND_MS;
/** The message that finishes what the request's process leaves undone comes so much later. */
const MESSAGE_DELAY_SECONDS = 30;
/** How often a request that waits looks whether its run is over. */
const LOOK_AGAIN_MS = SECOND_MS / 2;
/** Beside a list of edges so much is shown of what could not be looked into. */
const COVERAGE_BESIDE = 20;
/** Edges of one asset that are looked at, and as many of its vault: that there are more is told. */
const MAX_EDGES = 2000;

export interface BlastRadius {
  asset: FoundAsset;
  assetId: string;
  score: number;
  drivers: Driver[];
  /** The heaviest first. */
  consumers: Consumer[];
  /** There are more edges than were looked at: the score is the least that it may be. */
  more: boolean;
  coverage: Coverage;
}

/** Who uses which asset: reading it, and asking for it. */
export interface Dependencies {
  /**
   * Has all be read, and answers the run once it is over or after 20 seconds. While one is under way that is answered and no
   * new one begins.
   */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /** Works on one message of the queue. */
  handle(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** A message that failed for good. */
  failed(message: DiscoverMessage): Promise<void>;
  /**
   * Edges by vault, type and name, with the first of what could not be looked into. A request per 1,000 units, one for that,
   * and one a page, or ten with a filter that has no index.
   *
   * @throws {Problem} invalidCursor
   */
  list(filter: EdgeFilter, request: PageRequest): Promise<{ page: Page<FoundEdge>; coverage: Coverage }>;
  /** All that could not be looked into. @throws {Problem} invalidCursor */
  coverage(request: PageRequest): Promise<Page<NotSeenRecord> & Pick<Coverage, "lastFullAt">>;
  /** @throws {Problem} notFound: the inventory has no such asset; serviceVault. */
  blastRadius(id: string): Promise<BlastRadius>;
  /**
   * Who was seen to read an asset, by the logs; of an application's credential when it last signed in.
   *
   * @throws {Problem} as `blastRadius`
   */
  usage(id: string): Promise<{ assetId: string; usage: AssetUsage; lastSignIn: Date | undefined }>;
  /** The edges that name an asset, and those that name its whole vault. At most six requests. */
  edgesOf(place: AssetPlace): Promise<{ edges: FoundEdge[]; more: boolean }>;
  readonly references: Pick<References, "of" | "unresolved">;
}

export function createDependencies(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  sources: readonly EdgeSource[];
  /** What the logs have seen. */
  usage: Pick<Usage, "of" | "lastSignIn">;
  inventory: { assets: Pick<AssetQueries, "get">; moment(): Promise<Moment> };
  /** The vaults' secrets that hold an application's credential for certain. @throws {CloudFailure} */
  holdersOf?: (credential: { appId: string; keyId: string }) => Promise<AssetPlace[]>;
  /** Has compliance look at a vault again, and at these of its assets (`<type>.<name>`). */
  referencesChanged: (vaultName: string, assets: string[]) => Promise<void>;
  /** Run when a run has ended that may have changed something. */
  ended: () => Promise<void>;
  /** Whether there is a PRO licence: without one no run begins. */
  licensed: () => Promise<boolean>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
  /** Milliseconds a request waits for its run; for tests. */
  waitMs?: number;
}): Dependencies {
  const { tables, queues, audit, inventory, clock, log, waitMs = WAIT_MS } = deps;
  const runs = createRuns(deps);
  const references = createReferences({ tables, changed: deps.referencesChanged, clock });
  const work = createRunWork({
    ...deps,
    isServiceVault: (vaultName) => isServiceVault(deps.config, vaultName),
    runs,
    references,
  });

  async function begin(made: Pick<RunRecord, "mode" | "trigger">, caller: Caller): Promise<RunRecord> {
    const event = { type: "dependencies.discoveryRequested", caller, details: { ...made } };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs.start({ ...made, status: "queued", failures: [] }, caller);
        // Where one was under way, its message may be lost; another does no harm.
        await queues.send(
          QUEUE,
          { runId: run.runId },
          { delaySeconds: made.trigger === "api" ? MESSAGE_DELAY_SECONDS : 0 },
        );
        return run;
      },
      (run) => ({ details: { ...event.details, runId: run.runId } }),
    );
  }

  async function beginScheduled(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    if (await deps.licensed()) {
      const run = await begin({ mode, trigger: "schedule" }, caller);
      log.info("Dependencies will be read", { runId: run.runId, mode: run.mode });
      return;
    }
    log.info("Dependency discovery skipped: no PRO license", { mode });
    // What began under a licence is finished.
    const under = await runs.active();
    if (under) await queues.send(QUEUE, { runId: under.runId });
    // Once a week is enough to say so.
    if (mode !== "full") return;
    const details = { mode, reason: "licenseRequired" };
    await audit.append({ type: "dependencies.discovered", caller, outcome: "refused", details });
  }

  async function coverageBeside(units: ReadonlyMap<string, UnitRecord>): Promise<Coverage> {
    const page = await coveragePage(units, { limit: COVERAGE_BESIDE, offset: 0, cursor: undefined }, tables);
    return { items: page.items, total: page.total ?? 0, lastFullAt: page.lastFullAt };
  }

  /** The first edges under a prefix. */
  async function edgesUnder(prefix: string, units: ReadonlyMap<string, UnitRecord>) {
    const edges: FoundEdge[] = [];
    for await (const rows of tables.pages(Edges, rangeOf(prefix))) {
      edges.push(...rows.map((row) => seenEdge(withoutKeys(row), units)));
      if (edges.length >= MAX_EDGES) break;
    }
    return { edges, more: edges.length >= MAX_EDGES };
  }

  async function edgesOf({ vaultName, type, name }: AssetPlace, units: ReadonlyMap<string, UnitRecord>) {
    // What uses a certificate may name the key or the secret that backs it.
    const types: AssetType[] = type === "certificate" ? ["certificate", "key", "secret"] : [type];
    const [whole, ...found] = await Promise.all([
      edgesUnder(assetPrefix(vaultName), units),
      ...types.map((one) => edgesUnder(assetPrefix(vaultName, one, name), units)),
    ]);
    const ofVault = whole.edges.filter(({ edge }) => edge.type === undefined || types.includes(edge.type));
    return {
      edges: [...found.flatMap(({ edges }) => edges), ...ofVault],
      more: [whole, ...found].some(({ more }) => more),
    };
  }

  /** The asset with an id; of the secret or key that backs a certificate that certificate. */
  async function assetOf(id: string, moment: Moment): Promise<FoundAsset> {
    const found = await inventory.assets.get(id, moment);
    if (found) return ofOthers(found, id);
    const [place] = placesOf(id);
    const backed = place && place.type !== "certificate" && assetId({ ...place, type: "certificate" });
    const certificate = backed ? await inventory.assets.get(backed, moment) : undefined;
    return ofOthers(certificate, id);
  }

  function ofOthers(asset: FoundAsset | undefined, id: string): FoundAsset {
    if (!asset) throw notFound(`The asset ${id.slice(0, 300)}`);
    if (!isServiceVault(deps.config, asset.asset.vaultName)) return asset;
    throw new Problem("serviceVault", "Only the service itself uses the secrets in its own key vault.");
  }

  /**
   * Where else what uses the asset may be known: a client secret by its application, and by the secrets of vaults that hold it.
   */
  async function placesOfCredential(asset: AssetRecord): Promise<{ places: AssetPlace[]; notSeen?: NotSeenRecord }> {
    const { tenantId, appId, keyId } = asset.credential ?? {};
    if (tenantId === undefined || appId === undefined || keyId === undefined) return { places: [] };
    const ofApplication = { vaultName: applicationHolder(tenantId), type: "secret", name: appId } as const;
    try {
      const holders = sourceOf(asset) === "entra" ? await deps.holdersOf?.({ appId, keyId }) : [];
      return { places: [ofApplication, ...(holders ?? [])] };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      const unit = { source: "azure", unit: tenantId, since: clock.now().toISOString() };
      return {
        places: [ofApplication],
        notSeen: { scope: `the application ${appId}`, code, message, remedy, ...unit },
      };
    }
  }

  return {
    references,
    run: (runId) => runs.get(runId),

    async discover(caller) {
      const under = await runs.active();
      const { runId } = await begin({ mode: "full", trigger: "api" }, caller);
      const late = AbortSignal.timeout(waitMs);
      await waitForRun(work.work(runId, false), { runId, late, log });
      let run = await runs.get(runId);
      // The last units may be in the hands of the queue's workers.
      for (; !isOver(run) && !late.aborted; run = await runs.get(runId)) await delay(LOOK_AGAIN_MS);
      return { run, isNew: under?.runId !== runId };
    },

    async handle({ runId, mode = "full" }, caller) {
      if (runId === undefined) await beginScheduled(mode, caller);
      else await work.work(runId, true);
    },

    async failed({ runId }) {
      if (runId !== undefined) await work.giveUp(runId);
    },

    async list(filter, request) {
      const units = await allUnits(tables);
      const [page, coverage] = await Promise.all([listEdges(filter, request, units, tables), coverageBeside(units)]);
      return { page, coverage };
    },

    coverage: async (request) => await coveragePage(await allUnits(tables), request, tables),

    edgesOf: async (place) => await edgesOf(place, await allUnits(tables)),

    async usage(id) {
      const { asset } = await assetOf(id, await inventory.moment());
      const { appId, keyId } = asset.credential ?? {};
      const [usage, lastSignIn] = await Promise.all([
        deps.usage.of(asset),
        appId !== undefined && keyId !== undefined ? deps.usage.lastSignIn({ appId, keyId }) : undefined,
      ]);
      return { assetId: assetId(asset), usage, lastSignIn };
    },

    async blastRadius(id) {
      const moment = await inventory.moment();
      const asset = await assetOf(id, moment);
      const units = await allUnits(tables);
      const [coverage, { places, notSeen }] = await Promise.all([
        coverageBeside(units),
        placesOfCredential(asset.asset),
      ]);
      if (notSeen) {
        coverage.items.unshift(notSeen);
        coverage.total++;
      }
      const found = await Promise.all([asset.asset, ...places].map((place) => edgesOf(place, units)));
      const more = found.some((one) => one.more);
      const consumers = consumersOf(found.flatMap(({ edges }) => edges));
      const expiring = statusOf(asset.asset.expiresOn, moment) !== "healthy";
      return {
        asset,
        assetId: assetId(asset.asset),
        ...scoreAndDrivers(consumers, expiring),
        consumers,
        more,
        coverage,
      };
    },
  };
}
