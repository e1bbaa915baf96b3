import * as z from "zod";
import type { ScanProgress } from "../shared/discovery/discovery.ts";
import {
  QUEUES,
  SCAN_MODES,
  SCAN_STATUSES,
  ScanMessage,
  type ScanRecord,
  StartMessage,
  Tally,
  VAULT_OUTCOMES,
  VaultMessage,
} from "../shared/discovery/scan.ts";
import { pageOf, pageParameters, pageRequest, queryInstant } from "../shared/http/paging.ts";
import { notFound } from "../shared/http/problem.ts";
import { content, created, Deleted, deleted, ok } from "../shared/http/reply.ts";
import { Asset, assetView, Vault, vaultView } from "../shared/inventory/api.ts";
import { ASSET_TYPES } from "../shared/inventory/asset.ts";
import { assetsCsv } from "../shared/inventory/csv.ts";
import { STATUSES } from "../shared/inventory/health.ts";
import { VaultFailure } from "../shared/inventory/vault.ts";
import type { Logger } from "../shared/runtime.ts";
import { endpoint, queue, timer } from "./kit.ts";

const tag = "Discovery";
const instant = z.iso.datetime();
const guid = z.guid("must be a subscription id (a GUID)");

const ScanRequest = z
  .strictObject({
    mode: z.enum(SCAN_MODES).meta({
      description:
        "`full` reads all details, `delta` only of what is new or changed, `force` is `full` that also starts while another scan runs and tries vaults again that failed lately.",
    }),
    subscriptions: z.array(guid).max(1000).optional().meta({ description: "Only these; all when left out or empty." }),
  })
  .meta({ id: "ScanRequest" });

const scanFields = {
  scanId: z.string(),
  mode: z.enum(SCAN_MODES),
  subscriptions: z.array(z.string()).nullable().meta({ description: "As asked for; null for all." }),
  status: z.enum(SCAN_STATUSES),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  createdAt: instant,
  startedAt: instant.nullable(),
  finishedAt: instant.nullable(),
  deadline: instant.nullable(),
  failure: VaultFailure.nullable(),
};
const Scan = z.object(scanFields).meta({ id: "Scan" });
const ScanProgressView = z
  .object({
    ...scanFields,
    progress: z.object({
      vaultsTotal: z.int(),
      vaultsDone: z.int(),
      vaultsFailed: z.int(),
      assetsFound: z.int(),
      assetsAdded: z.int(),
      assetsUpdated: z.int(),
      assetsRemoved: z.int(),
    }),
    subscriptionOutcomes: z.array(
      z.object({ subscriptionId: z.string(), vaults: z.int(), failure: VaultFailure.nullable() }),
    ),
  })
  .meta({ id: "ScanProgress" });
const VaultResult = z
  .object({
    vaultName: z.string(),
    subscriptionId: z.string(),
    outcome: z.enum(VAULT_OUTCOMES),
    failures: z.array(VaultFailure.extend({ list: z.string() })),
    tally: Tally,
    added: z.array(z.string()).meta({ description: "Asset ids; at most 1,000 are named, the tally counts all." }),
    updated: z.array(z.string()),
    removed: z.array(z.string()),
    finishedAt: instant,
  })
  .meta({ id: "VaultResult" });
const ScanResults = pageOf(VaultResult, "VaultResultList")
  .extend({ scan: ScanProgressView })
  .meta({ id: "ScanResults" });

const scanView = (scan: ScanRecord): z.infer<typeof Scan> => ({
  scanId: scan.scanId,
  mode: scan.mode,
  subscriptions: scan.subscriptions ?? null,
  status: scan.status,
  trigger: scan.trigger,
  requestedBy: scan.requestedBy,
  createdAt: scan.createdAt,
  startedAt: scan.startedAt ?? null,
  finishedAt: scan.finishedAt ?? null,
  deadline: scan.deadline ?? null,
  failure: scan.failure ?? null,
});

const progressView = (scan: ScanProgress): z.infer<typeof ScanProgressView> => ({
  ...scanView(scan),
  progress: {
    vaultsTotal: scan.vaultsTotal,
    vaultsDone: scan.vaultsDone,
    vaultsFailed: scan.vaultsFailed,
    assetsFound: scan.tally.found.certificate + scan.tally.found.key + scan.tally.found.secret,
    assetsAdded: scan.tally.added,
    assetsUpdated: scan.tally.updated,
    assetsRemoved: scan.tally.removed,
  },
  subscriptionOutcomes: scan.subscriptionOutcomes.map((one) => ({ ...one, failure: one.failure ?? null })),
});

const scanParams = z.object({ scan_id: z.string().meta({ description: "The scanId of the scan." }) });

const vaultName = z.string().regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name");
const boolean = z.enum(["true", "false"]).transform((value) => value === "true");

const AssetQuery = z.strictObject({
  type: z.enum(ASSET_TYPES).optional(),
  status: z.enum(STATUSES).optional(),
  vault: vaultName.optional().meta({ description: "A vault's name." }),
  subscription: guid.optional(),
  search: z.string().min(1).max(127).optional().meta({ description: "Part of the name, in any case." }),
  expiresBefore: queryInstant("start")
    .optional()
    .meta({ description: "Expires before this date or instant.", type: "string" }),
  expiresAfter: queryInstant("start")
    .optional()
    .meta({ description: "Expires after this date or instant.", type: "string" }),
  enabled: boolean.optional(),
  tag: z.string().min(1).max(512).optional().meta({ description: "`name` or `name=value`." }),
  owner: z.string().min(1).max(256).optional(),
  sort: z
    .enum(["name", "expiresOn"])
    .optional()
    .meta({ description: "By name, unless a filter of expiry orders by it." }),
  format: z
    .enum(["json", "csv"])
    .optional()
    .meta({ description: "`csv`: a file of up to 10,000 assets a part; `Link` names the next." }),
  ...pageParameters,
});

const tagFilter = (text: string): { name: string; value?: string } => {
  const at = text.indexOf("=");
  return at < 1 ? { name: text } : { name: text.slice(0, at), value: text.slice(at + 1) };
};

/** Assets per part of a CSV answer. */
const CSV_PART = 10_000;

const startScan = endpoint({
  name: "startScan",
  method: "POST",
  route: "api/assets/discovery/scan",
  summary: "Start a discovery scan",
  tag,
  access: "admin",
  tier: "core",
  body: ScanRequest,
  responds: { 201: Scan },
  handle: async ({ body, caller, services }) => {
    const scan = await services.discovery.start(body, caller);
    return created(scanView(scan), `/api/assets/discovery/scan/${scan.scanId}/status`);
  },
});

const cancelScan = endpoint({
  name: "cancelScan",
  method: "DELETE",
  route: "api/assets/discovery/scan/{scan_id}",
  summary: "Cancel a scan",
  description: "Vaults under way are finished, waiting ones are not begun; the scan then ends as `cancelled`.",
  tag,
  access: "admin",
  tier: "core",
  params: scanParams,
  responds: { 200: Deleted },
  handle: async ({ params, caller, services }) => {
    await services.discovery.cancel(params.scan_id, caller);
    return deleted();
  },
});

const getScanStatus = endpoint({
  name: "getScanStatus",
  method: "GET",
  route: "api/assets/discovery/scan/{scan_id}/status",
  summary: "A scan's status and progress",
  tag,
  access: "user",
  tier: "core",
  params: scanParams,
  responds: { 200: ScanProgressView },
  handle: async ({ params, services }) => ok(progressView(await services.discovery.progress(params.scan_id))),
});

const getScanResults = endpoint({
  name: "getScanResults",
  method: "GET",
  route: "api/assets/discovery/scan/{scan_id}/results",
  summary: "What came of each vault of a scan",
  tag,
  access: "user",
  tier: "core",
  params: scanParams,
  query: z.strictObject(pageParameters),
  responds: { 200: ScanResults },
  handle: async ({ params, query, services }) => {
    const { scan, page } = await services.discovery.results(params.scan_id, pageRequest(query));
    const items = page.items.map(({ vaultName: name, subscriptionId, outcome, failures, tally, ...rest }) => ({
      ...{ vaultName: name, subscriptionId, outcome, tally },
      failures: failures.map(({ list, code, message, remedy, at }) => ({ list, code, message, remedy, at })),
      ...{ added: rest.added, updated: rest.updated, removed: rest.removed, finishedAt: rest.finishedAt },
    }));
    return ok({ scan: progressView(scan), ...page, items });
  },
});

const listScans = endpoint({
  name: "listScans",
  method: "GET",
  route: "api/assets/discovery/scans",
  summary: "The scans, newest first",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(Scan, "ScanList") },
  handle: async ({ query, services }) => {
    const page = await services.discovery.list(pageRequest(query));
    return ok({ ...page, items: page.items.map(scanView) });
  },
});

const listAssets = endpoint({
  name: "listAssets",
  method: "GET",
  route: "api/assets/discovery/assets",
  summary: "The inventory: secrets, keys and certificates",
  description:
    "All filters work together. With status, expiresBefore or expiresAfter the order is by expiry. The filters search, enabled, tag and owner have no index: one call looks through up to 10,000 rows and then answers what it found with a nextCursor.",
  tag,
  access: "user",
  tier: "core",
  query: AssetQuery,
  responds: {
    200: { description: "Success", mediaTypes: ["text/csv"], json: pageOf(Asset, "AssetList") },
  },
  handle: async ({ query, services, url }) => {
    const { tag: tagText, format, limit, offset, cursor, ...filter } = query;
    const moment = await services.inventory.moment();
    const csv = format === "csv";
    const request = pageRequest({ limit: limit ?? (csv ? CSV_PART : undefined), offset, cursor });
    const page = await services.inventory.assets.list(
      { ...filter, ...(tagText === undefined ? {} : { tag: tagFilter(tagText) }) },
      request,
      moment,
    );
    const items = page.items.map((found) => assetView(found, moment, services.config.OWNER_TAG));
    if (!csv) return ok({ ...page, items });
    const next = new URLSearchParams(url.searchParams);
    next.delete("offset");
    if (page.nextCursor) next.set("cursor", page.nextCursor);
    return content("text/csv; charset=utf-8", assetsCsv(items), {
      "Content-Disposition": 'attachment; filename="assets.csv"',
      ...(page.nextCursor ? { Link: `<${url.pathname}?${next}>; rel="next"` } : {}),
    });
  },
});

const getAsset = endpoint({
  name: "getAsset",
  method: "GET",
  route: "api/assets/discovery/assets/{asset_id}",
  summary: "One asset",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ asset_id: z.string().meta({ description: "`<vault>.<type>.<name>`" }) }),
  responds: { 200: Asset },
  handle: async ({ params, services }) => {
    const found = await services.inventory.assets.get(params.asset_id);
    if (!found) throw notFound(`The asset ${params.asset_id.slice(0, 300)}`);
    return ok(assetView(found, await services.inventory.moment(), services.config.OWNER_TAG));
  },
});

const listVaults = endpoint({
  name: "listVaults",
  method: "GET",
  route: "api/assets/discovery/vaults",
  summary: "The vaults, with the health of what they hold",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({ subscription: guid.optional(), ...pageParameters }),
  responds: { 200: pageOf(Vault, "VaultList") },
  handle: async ({ query, services }) => {
    const [page, moment] = await Promise.all([
      services.inventory.vaults({ subscription: query.subscription }, pageRequest(query)),
      services.inventory.moment(),
    ]);
    return ok({ ...page, items: page.items.map((vault) => vaultView(vault, moment)) });
  },
});

export const endpoints = [
  startScan,
  cancelScan,
  getScanStatus,
  getScanResults,
  listScans,
  listAssets,
  getAsset,
  listVaults,
];

/** Starting by way of a queue gives every deployment its own moment, and a failed start its retries. */
const schedule = (mode: "full" | "delta") => async (services: Parameters<TimerHandle>[0]["services"], log: Logger) => {
  const delaySeconds = Math.floor(services.randomness.number() * services.config.SCHEDULE_JITTER_SECONDS);
  await services.queues.send(QUEUES.start, { mode }, { delaySeconds });
  log.info("A scheduled scan will start", { mode, delaySeconds });
};
type TimerHandle = Parameters<typeof timer>[0]["handle"];

export const timers = [
  timer({
    name: "startDeltaScan",
    schedule: (config) => config.DELTA_SCAN_SCHEDULE,
    handle: ({ services, log }) => schedule("delta")(services, log),
  }),
  timer({
    name: "startFullScan",
    schedule: (config) => config.FULL_SCAN_SCHEDULE,
    handle: ({ services, log }) => schedule("full")(services, log),
  }),
  timer({
    name: "watchScans",
    schedule: () => "30 * * * * *",
    handle: ({ services }) => services.watchScans(),
  }),
];

export const queues = [
  queue({
    name: "startScheduledScan",
    queue: QUEUES.start,
    message: StartMessage,
    handle: ({ mode }, { services, requestId }) => services.discovery.startScheduled(mode, requestId),
  }),
  queue({
    name: "startScheduledScanFailed",
    queue: `${QUEUES.start}-poison`,
    message: StartMessage,
    handle: ({ mode }, { services, requestId }) => services.discovery.scheduledFailed(mode, requestId),
  }),
  queue({
    name: "planScan",
    queue: QUEUES.plan,
    message: ScanMessage,
    handle: ({ scanId }, { services, delivery }) => services.scanRun.plan(scanId, delivery),
  }),
  queue({
    name: "planScanFailed",
    queue: `${QUEUES.plan}-poison`,
    message: ScanMessage,
    handle: ({ scanId }, { services }) => services.discovery.planFailed(scanId),
  }),
  queue({
    name: "scanVault",
    queue: QUEUES.vaults,
    message: VaultMessage,
    handle: (message, { services, delivery }) => services.scanRun.scanChain(message, delivery),
  }),
  queue({
    name: "scanVaultFailed",
    queue: `${QUEUES.vaults}-poison`,
    message: VaultMessage,
    handle: ({ scanId, index }, { services }) => services.discovery.vaultFailed(scanId, index),
  }),
  queue({
    name: "finishScan",
    queue: QUEUES.finish,
    message: ScanMessage,
    handle: ({ scanId }, { services }) => services.scanRun.finish(scanId),
  }),
];
