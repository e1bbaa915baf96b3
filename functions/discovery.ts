import * as z from "zod";
import { ServedCertificate, servedView } from "../shared/certificates/endpoints-api.ts";
import {
  progressView,
  Scan,
  ScanProgressView,
  ScanRequest,
  ScanResults,
  scanView,
  vaultResultView,
} from "../shared/discovery/api.ts";
import { RESCAN_QUEUE, RescanMessage } from "../shared/discovery/rescan-rows.ts";
import { QUEUES, ScanMessage, StartMessage, VaultMessage } from "../shared/discovery/scan.ts";
import { EVENT_QUEUE, VaultEvent } from "../shared/discovery/vault-event.ts";
import {
  Asset,
  AssetDetails,
  AssetFileQuery,
  AssetQuery,
  assetDetailsView,
  assetView,
  requireConsistentFilters,
  tagFilter,
  Vault,
  VaultQuery,
  vaultView,
} from "../shared/inventory/api.ts";
import { sourceOf } from "../shared/inventory/asset.ts";
import { ASSETS_CSV_EXAMPLE, assetsCsv } from "../shared/inventory/csv.ts";
import {
  ChangeList,
  ChangeQuery,
  changeView,
  SUMMARY_DAYS,
  Summary,
  SummaryQuery,
  summaryView,
} from "../shared/inventory/summary-api.ts";
import { AssetVersions, versionsView } from "../shared/inventory/versions-api.ts";
import { portalOf } from "../shared/platform/azure/portal.ts";
import { PageQuery, pageOf, pageRequest, pageView, requireOrder } from "../shared/platform/http/paging.ts";
import { notFound } from "../shared/platform/http/problem.ts";
import { content, created, Deleted, deleted, ok, type Reply } from "../shared/platform/http/reply.ts";
import { DAY_MS } from "../shared/platform/time.ts";
import { endpoint, type Invocation, poison, queue, sendWithJitter, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints, timers and queue handlers of scans, and endpoints of the inventory of assets that scans find. A scan is planned by
 * one message, and workers then read its vaults, each by a chain of messages. A re-scan reads one vault after Event Grid has
 * reported a change. Functions whose names contain `lookAtVault` handle re-scans.
 */

const tag = "Discovery";
const scanParams = z.object({ scan_id: z.string().meta({ description: "ID of the scan." }) });

/** Maximum number of assets in one part of a CSV export. */
const MAX_CSV_PART_ASSETS = 10_000;

const startScan = endpoint({
  name: "startScan",
  method: "POST",
  route: "api/assets/discovery/scan",
  summary: "Start a discovery scan",
  tag,
  access: "operator",
  tier: "core",
  body: ScanRequest,
  example: { body: { mode: "delta" } },
  responds: { 201: Scan },
  repeat: {
    idOf: ({ scanId }) => scanId,
    answer: async ({ id, services }) => scanView(await services.discovery.progress(id)),
  },
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
  description:
    "The scan completes vaults that are in progress, skips the remaining vaults, and ends with status `cancelled`.",
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
  summary: "Get the status and progress of a scan",
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
  summary: "Get the per-vault results of a scan",
  tag,
  access: "user",
  tier: "core",
  params: scanParams,
  query: PageQuery,
  responds: { 200: ScanResults },
  handle: async ({ params, query, services }) => {
    const { scan, page } = await services.discovery.results(params.scan_id, pageRequest(query));
    return ok({ scan: progressView(scan), ...pageView(page, vaultResultView) });
  },
});

const listScans = endpoint({
  name: "listScans",
  method: "GET",
  route: "api/assets/discovery/scans",
  summary: "List scans, newest first",
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: pageOf(Scan, "ScanList") },
  handle: async ({ query, services }) => {
    const page = await services.discovery.list(pageRequest(query));
    return ok(pageView(page, scanView));
  },
});

const listAssets = endpoint({
  name: "listAssets",
  method: "GET",
  route: "api/assets/discovery/assets",
  summary: "List assets: secrets, keys and certificates",
  description:
    "Assets that are out of scope are included, marked, and excluded from counts and the score; use counted=true or outOfScope=false to exclude them. All filters can be combined. With status, expiresBefore or expiresAfter, assets are ordered by expiry date. The filters search, b2cTenant, enabled, tag, owner and hasOwner have no index: each call reads up to 10,000 rows and returns the matches with a nextCursor.",
  tag,
  access: "user",
  tier: "core",
  query: AssetQuery,
  example: { query: { status: "warning", limit: "10" } },
  responds: { 200: { json: pageOf(Asset, "AssetList"), or: ["text/csv"] } },
  handle: async ({ query: { format, ...query }, services, url }) =>
    format === "csv" ? await assetFile(query, services, url) : ok(await assetPage(query, services)),
});

const exportAssets = endpoint({
  name: "exportAssets",
  method: "GET",
  route: "api/assets/discovery/export/csv",
  summary: "Export assets as CSV",
  description: `Accepts the filters of GET /api/assets/discovery/assets and uses its order. Each part contains up to ${MAX_CSV_PART_ASSETS.toLocaleString("en")} assets; the header \`Link: <…>; rel="next"\` leads to the next part.`,
  tag,
  access: "user",
  tier: "core",
  query: AssetFileQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: { 200: { description: "A part of the list.", mediaType: "text/csv", example: ASSETS_CSV_EXAMPLE } },
  handle: async ({ query, services, url }) => await assetFile(query, services, url),
});

type AssetRequest = Omit<z.output<typeof AssetQuery>, "format">;

/** Returns a page of the assets that match the query. */
async function assetPage(query: AssetRequest, services: Services) {
  const { tag: tagText, limit, offset, cursor, ...filter } = query;
  requireConsistentFilters(filter);
  // The current time and the expiry thresholds, which decide the status of each asset.
  const moment = await services.inventory.moment();
  const page = await services.inventory.assets.list(
    { ...filter, ...(tagText === undefined ? {} : { tag: tagFilter(tagText) }) },
    pageRequest({ limit, offset, cursor }),
    moment,
  );
  return pageView(page, (asset) => assetView(asset, moment, services.config.OWNER_TAG));
}

/** Returns a part of the assets as a CSV file, with a link to the next part. */
async function assetFile(query: AssetRequest, services: Services, url: URL): Promise<Reply<never>> {
  const { items, nextCursor } = await assetPage({ ...query, limit: query.limit ?? MAX_CSV_PART_ASSETS }, services);
  const next = new URLSearchParams(url.searchParams);
  next.delete("offset");
  if (nextCursor) next.set("cursor", nextCursor);
  return content("text/csv; charset=utf-8", assetsCsv(items), {
    "Content-Disposition": 'attachment; filename="assets.csv"',
    ...(nextCursor ? { Link: `<${url.pathname}?${next}>; rel="next"` } : {}),
  });
}

const assetParams = z.object({
  asset_id: z.string().meta({
    description:
      "`<vault>.<type>.<name>`, `entra.<tenantId>.<appId>.<keyId>` or `b2c.<tenantId>.<kind>.<name>[.<keyId>]`",
  }),
});

const AssetAnswer = AssetDetails.extend({
  served: z.array(ServedCertificate).optional().meta({
    description:
      "For a certificate in a key vault, with a PRO license: the endpoints that are known to serve the certificate, with the result of the last check of each.",
  }),
}).meta({ id: "AssetDetails" });

const getAsset = endpoint({
  name: "getAsset",
  method: "GET",
  route: "api/assets/discovery/assets/{asset_id}",
  summary: "Get an asset",
  tag,
  access: "user",
  tier: "core",
  params: assetParams,
  responds: { 200: AssetAnswer },
  handle: async ({ params, services }) => {
    const moment = await services.inventory.moment();
    const asset = await services.inventory.assets.get(params.asset_id, moment);
    if (!asset) throw notFound(`The asset ${params.asset_id.slice(0, 300)}`);
    const { config, certificateEndpoints } = services;
    const { vaultName, type, name } = asset.asset;
    const isServed = type === "certificate" && sourceOf(asset.asset) === "keyVault" && (await services.licensed());
    const endpoints = isServed ? await certificateEndpoints.ofCertificate({ vaultName, name }) : undefined;
    return ok({
      ...assetDetailsView(asset, moment, { ownerTag: config.OWNER_TAG, portal: portalOf(config) }),
      ...(endpoints && { served: endpoints.map((row) => servedView(row, services.clock.now())) }),
    });
  },
});

const listVaults = endpoint({
  name: "listVaults",
  method: "GET",
  route: "api/assets/discovery/vaults",
  summary: "List vaults with the health of their assets",
  tag,
  access: "user",
  tier: "core",
  query: VaultQuery,
  example: { query: { limit: "10" } },
  responds: { 200: pageOf(Vault, "VaultList") },
  handle: async ({ query, services }) => {
    const { limit, offset, cursor, ...filter } = query;
    const [page, moment] = await Promise.all([
      services.inventory.vaults(filter, pageRequest({ limit, offset, cursor })),
      services.inventory.moment(),
    ]);
    return ok(pageView(page, (vault) => vaultView(vault, moment)));
  },
});

const listAssetVersions = endpoint({
  name: "listAssetVersions",
  method: "GET",
  route: "api/assets/discovery/assets/{asset_id}/versions",
  summary: "List the versions of an asset",
  description:
    "Reads the versions from the vault, newest first, without values. Returns 503 with the reason and the fix if the vault can't be read.",
  tag,
  access: "user",
  tier: "core",
  params: assetParams,
  responds: { 200: AssetVersions },
  problems: ["notFound", "conflict", "unavailable"],
  handle: async ({ params, services }) =>
    ok(versionsView(params.asset_id, await services.inventory.versions(params.asset_id))),
});

const listAssetChanges = endpoint({
  name: "listAssetChanges",
  method: "GET",
  route: "api/assets/discovery/changes",
  summary: "List inventory changes, newest first",
  description:
    "Returns every asset change that a scan or discovery found. Changes are kept for scanRetentionDays. Each call reads the changes of up to 1,000 vaults and returns the matches with a nextCursor.",
  tag,
  access: "user",
  tier: "core",
  query: ChangeQuery,
  example: { query: { limit: "10" } },
  responds: { 200: ChangeList },
  handle: async ({ query, services }) => {
    const { limit, offset, cursor, ...filter } = query;
    requireOrder({ since: filter.since, until: filter.until });
    const page = await services.inventory.changes(filter, pageRequest({ limit, offset, cursor }));
    return ok(pageView(page, changeView));
  },
});

const getAssetSummary = endpoint({
  name: "getAssetSummary",
  method: "GET",
  route: "api/assets/summary",
  summary: "Get an inventory summary",
  description:
    "Counts assets by status, type, subscription, vault and owner, and lists the next expiries and the changes. Includes only counted assets: the asset list with counted=true and the same filters has the same total.",
  tag,
  access: "user",
  tier: "core",
  query: SummaryQuery,
  responds: { 200: Summary },
  handle: async ({ query, services }) => {
    const moment = await services.inventory.moment();
    const since = query.since ?? new Date(moment.now - SUMMARY_DAYS * DAY_MS);
    return ok(summaryView(await services.inventory.assets.summary({ ...query, since }, moment), moment, since));
  },
});

export const endpoints = [
  startScan,
  cancelScan,
  getScanStatus,
  getScanResults,
  listScans,
  listAssets,
  exportAssets,
  getAsset,
  listAssetVersions,
  listAssetChanges,
  getAssetSummary,
  listVaults,
];

/** Sends the message that starts a scheduled scan. */
async function scheduleScan(mode: "full" | "delta", invocation: Invocation): Promise<void> {
  const delaySeconds = await sendWithJitter(invocation, QUEUES.start, { mode });
  invocation.log.info("A scheduled scan will start", { mode, delaySeconds });
}

export const timers = [
  timer({
    name: "startDeltaScan",
    schedule: { setting: "DELTA_SCAN_SCHEDULE" },
    handle: (invocation) => scheduleScan("delta", invocation),
  }),
  timer({
    name: "startFullScan",
    schedule: { setting: "FULL_SCAN_SCHEDULE" },
    handle: (invocation) => scheduleScan("full", invocation),
  }),
  timer({
    name: "watchScans",
    schedule: "30 * * * * *",
    handle: async ({ services, requestId }) => {
      // Each of the four runs even if another one fails. The check of signed rows needs no timer of its own.
      const results = await Promise.allSettled([
        services.watchScans(),
        services.rescans.watch(),
        services.startFirstScan(requestId),
        services.signedRows.check(),
      ]);
      const failures = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
      if (failures.length > 1) throw new AggregateError(failures, failures.map(String).join("; "));
      if (failures.length > 0) throw failures[0];
    },
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
    handle: ({ scanId }, { services, delivery }) => services.scanRun.scan(scanId, delivery),
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
  // Needs no own handler: the timer `watchScans` queues the completion of a scan again every minute.
  poison({ name: "finishScanFailed", of: QUEUES.finish, message: ScanMessage }),
  // Event Grid writes to this queue.
  queue({
    name: "noteVaultEvent",
    queue: EVENT_QUEUE,
    message: VaultEvent,
    handle: (event, { services, delivery }) => services.rescans.requestForEvent(event, delivery),
  }),
  // Needs no own handler: the next scan finds the change.
  poison({ name: "noteVaultEventFailed", of: EVENT_QUEUE, message: VaultEvent }),
  queue({
    name: "lookAtVault",
    queue: RESCAN_QUEUE,
    message: RescanMessage,
    handle: ({ vaultName }, { services, requestId }) => services.rescans.rescan(vaultName, requestId),
  }),
  poison({
    name: "lookAtVaultFailed",
    of: RESCAN_QUEUE,
    message: RescanMessage,
    handle: ({ vaultName }, { services }) => services.rescans.failed(vaultName),
  }),
];
