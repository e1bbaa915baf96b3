import * as z from "zod";
import {
  progressView,
  Scan,
  ScanProgressView,
  ScanRequest,
  ScanResults,
  scanView,
  vaultResultView,
} from "../shared/discovery/api.ts";
import { QUEUES, ScanMessage, StartMessage, VaultMessage } from "../shared/discovery/scan.ts";
import { pageOf, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { notFound } from "../shared/http/problem.ts";
import { content, created, Deleted, deleted, ok } from "../shared/http/reply.ts";
import { Asset, AssetQuery, assetView, tagFilter, Vault, VaultQuery, vaultView } from "../shared/inventory/api.ts";
import { assetsCsv } from "../shared/inventory/csv.ts";
import { endpoint, type Invocation, poison, queue, timer } from "./kit.ts";

const tag = "Discovery";
const scanParams = z.object({ scan_id: z.string().meta({ description: "The scanId of the scan." }) });

/** Assets per part of a CSV answer. */
const CSV_PART = 10_000;

const startScan = endpoint({
  name: "startScan",
  method: "POST",
  route: "api/assets/discovery/scan",
  summary: "Start a discovery scan",
  tag,
  access: "operator",
  tier: "core",
  body: ScanRequest,
  responds: { 201: Scan },
  problems: ["scanRunning"],
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
  access: "operator",
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
    return ok({ scan: progressView(scan), ...page, items: page.items.map(vaultResultView) });
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
  params: z.object({
    asset_id: z.string().meta({
      description:
        "`<vault>.<type>.<name>`, `entra.<tenantId>.<appId>.<keyId>` or `b2c.<tenantId>.<kind>.<name>[.<keyId>]`",
    }),
  }),
  responds: { 200: Asset },
  handle: async ({ params, services }) => {
    const moment = await services.inventory.moment();
    const found = await services.inventory.assets.get(params.asset_id, moment);
    if (!found) throw notFound(`The asset ${params.asset_id.slice(0, 300)}`);
    return ok(assetView(found, moment, services.config.OWNER_TAG));
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
  query: VaultQuery,
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
const schedule = async (mode: "full" | "delta", { services, log }: Invocation) => {
  const delaySeconds = Math.floor(services.randomness.number() * services.config.SCHEDULE_JITTER_SECONDS);
  await services.queues.send(QUEUES.start, { mode }, { delaySeconds });
  log.info("A scheduled scan will start", { mode, delaySeconds });
};

export const timers = [
  timer({
    name: "startDeltaScan",
    schedule: (config) => config.DELTA_SCAN_SCHEDULE,
    handle: (invocation) => schedule("delta", invocation),
  }),
  timer({
    name: "startFullScan",
    schedule: (config) => config.FULL_SCAN_SCHEDULE,
    handle: (invocation) => schedule("full", invocation),
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
  poison({
    name: "startScheduledScanFailed",
    of: QUEUES.start,
    message: StartMessage,
    handle: ({ mode }, { services, requestId }) => services.discovery.scheduledFailed(mode, requestId),
  }),
  queue({
    name: "planScan",
    queue: QUEUES.plan,
    message: ScanMessage,
    handle: ({ scanId }, { services, delivery }) => services.scanRun.plan(scanId, delivery),
  }),
  poison({
    name: "planScanFailed",
    of: QUEUES.plan,
    message: ScanMessage,
    handle: ({ scanId }, { services }) => services.scanRun.planFailed(scanId),
  }),
  queue({
    name: "scanVault",
    queue: QUEUES.vaults,
    message: VaultMessage,
    handle: (message, { services, delivery }) => services.scanRun.scanVaults(message, delivery),
  }),
  poison({
    name: "scanVaultFailed",
    of: QUEUES.vaults,
    message: VaultMessage,
    handle: ({ scanId, index }, { services }) => services.scanRun.vaultFailed(scanId, index),
  }),
  queue({
    name: "finishScan",
    queue: QUEUES.finish,
    message: ScanMessage,
    handle: ({ scanId }, { services }) => services.scanRun.finish(scanId),
  }),
  // The scan's watch asks for its end again every minute.
  poison({ name: "finishScanFailed", of: QUEUES.finish, message: ScanMessage }),
];
