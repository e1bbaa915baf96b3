import { SpanKind } from "@opentelemetry/api";
import type { Alerts } from "../../shared/alerts/alerts.ts";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { type ActiveScanList, createActiveScans } from "../../shared/discovery/active-scans.ts";
import { createDiscovery, type Discovery } from "../../shared/discovery/discovery.ts";
import { createFirstScan } from "../../shared/discovery/first-scan.ts";
import { createRescans, type Rescans } from "../../shared/discovery/rescans.ts";
import { createScanRun, type ScanRun } from "../../shared/discovery/scan-run.ts";
import { readVault, type ScanVaultDeps } from "../../shared/discovery/scan-vault.ts";
import { createScanWatch } from "../../shared/discovery/scan-watch.ts";
import { withSpan } from "../../shared/platform/telemetry.ts";
import { createSubscriptions, type Subscriptions } from "../../shared/subscriptions/subscriptions.ts";
import type { InventoryServices } from "./inventory.ts";
import type { Platform } from "./platform.ts";

/**
 * Subscriptions and scans. A scan reads all vaults of the monitored subscriptions. A re-scan reads one vault, after an event
 * reported a change.
 */
export interface DiscoveryServices {
  subscriptions: Subscriptions;
  /** Returns whether a subscription is monitored. */
  isWatched: (subscriptionId: string) => Promise<boolean>;
  activeScans: ActiveScanList;
  rescans: Rescans;
  scanRun: ScanRun;
  discovery: Discovery;
  watchScans: () => Promise<void>;
  startFirstScan: (requestId: string) => Promise<void>;
}

/** @param recordMetrics - Records metrics. It is called after each scan if telemetry is exported. */
export function createDiscoveryServices(
  platform: Platform,
  { compliance, writer, inventory, alerts }: InventoryServices & { alerts: Alerts },
  recordMetrics: () => Promise<void>,
): DiscoveryServices {
  const { config, clock, randomness, log, tables, queues, settings, audit, identity } = platform;
  const { keyVaults, resourceManager } = platform;
  const active = createActiveScans({ tables, clock, audit });
  const subscriptions = createSubscriptions({
    tables,
    config,
    settings,
    clock,
    audit,
    resourceManager,
    keyVaults,
    identity,
    inventory: {
      counts: () => inventory.bySubscription(),
      rejectWhileScanned: (subscriptionId) => active.rejectWhileScanned(subscriptionId),
      forget: (subscriptionId) => inventory.forgetSubscription(subscriptionId),
    },
  });
  settings.onChange(async (keys) => {
    if (keys.includes("watchAll")) await subscriptions.refreshScope({ actor: "system", requestId: "settings" });
  });
  const vaultDeps: ScanVaultDeps = {
    writer,
    keyVaults,
    resourceManager,
    clock,
    ownerTag: config.OWNER_TAG,
    detailRefreshDays: config.DETAIL_REFRESH_DAYS,
    renewalInformation: createRenewalInformation({ config, clock }),
    log,
    prepareChange: compliance.prepareChange,
  };
  const isSubscriptionWatched = (subscriptionId: string) => isWatched(subscriptions, subscriptionId);
  const rescans = createRescans({
    ...vaultDeps,
    tables,
    queues,
    settings,
    active,
    config,
    audit,
    watched: isSubscriptionWatched,
    onInventoryChanged: () => alerts.requestEvaluation(),
    randomness,
    log,
  });
  const scanRun = createScanRun({
    tables,
    queues,
    settings,
    resourceManager,
    active,
    audit,
    clock,
    randomness,
    log,
    subscriptions,
    renewTotals: async () => {
      await Promise.all([inventory.renewTotals(), compliance.renewTotals()]);
    },
    onEnded: async (scan) => {
      await subscriptions.scanned(scan);
      await alerts.requestEvaluation();
      if (config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined) await recordMetrics();
    },
    // Re-scans share the workers of scans: they run between two vaults, and when a worker or a scan has ended.
    runWaitingRescan: rescans.runWaitingRescan,
    onWorkerFreed: rescans.onWorkerFreed,
    onScanRemoved: rescans.wakeNextRescan,
    readVault: async (planned, options) => {
      const span = { kind: SpanKind.INTERNAL, attributes: { "vault.name": planned.name } };
      const read = await withSpan({ name: "read vault", ...span }, () => readVault(planned, options, vaultDeps));
      return { ...read, write: () => withSpan({ name: "write vault", ...span }, read.write) };
    },
  });
  const discovery = createDiscovery({
    tables,
    queues,
    active,
    requireWatched: (ids) => subscriptions.requireWatched(ids),
    audit,
    clock,
    randomness,
    log,
  });
  const watchScans = createScanWatch({ tables, queues, active, run: scanRun, clock, log });
  const enabled = config.FIRST_SCAN === "on";
  const startFirstScan = createFirstScan({ tables, discovery, enabled, clock, randomness, log });
  return {
    subscriptions,
    isWatched: isSubscriptionWatched,
    activeScans: active,
    rescans,
    scanRun,
    discovery,
    watchScans,
    startFirstScan,
  };
}

async function isWatched(subscriptions: Subscriptions, subscriptionId: string): Promise<boolean> {
  const { all, named, discovered } = await subscriptions.watched();
  const id = subscriptionId.toLowerCase();
  // `named`: added or configured, always watched. `all`: the setting watchAll, with which every discovered subscription is watched.
  // Before the first scan, the list of discovered subscriptions is empty.
  return named.includes(id) || (all && (discovered.length === 0 || discovered.includes(id)));
}
