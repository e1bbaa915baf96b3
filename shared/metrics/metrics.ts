import type { Alerts } from "../alerts/alerts.ts";
import { DELIVERY_STATUSES } from "../alerts/delivery.ts";
import { SEVERITIES } from "../compliance/check.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { Discovery, EndedScan } from "../discovery/discovery.ts";
import { isOver, SCAN_MODES, SCAN_STATUSES } from "../discovery/scan.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { STATUSES } from "../inventory/asset-status.ts";
import type { Inventory } from "../inventory/inventory.ts";
import type { InventoryCounts } from "../inventory/query.ts";
import type { FailedMessages } from "../messages/failed-messages.ts";
import type { Clock } from "../platform/runtime.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type Gauge, gaugesText, type Sample } from "./prometheus-text.ts";

/**
 * Failed deliveries are counted for a day. A delivery is retried for up to 21 hours, so every failure is visible for some time.
 */
const DELIVERIES_MS = 2 * DAY_MS;
const MESSAGES_MS = DAY_MS;

/** Metrics of the service for monitoring systems. */
export interface Metrics {
  /**
   * Returns the metrics in the text format of Prometheus. Values are read from rows at each call, so every instance returns the
   * same, and every series always exists. Costs at most six requests for up to 1,000 vaults, and two more for each further
   * 1,000. Label values are from fixed lists, never names.
   */
  text(): Promise<string>;
  /** Sends the assets by status and the score to telemetry. Costs the same as in `text`. */
  record(): Promise<void>;
}

export function createMetrics(deps: {
  inventory: Pick<Inventory, "assets" | "moment">;
  compliance: Pick<Compliance, "standing">;
  discovery: Pick<Discovery, "lastEnded">;
  alerts: Pick<Alerts, "history">;
  failedMessages: Pick<FailedMessages, "countSince">;
  clock: Clock;
}): Metrics {
  const { inventory, compliance, discovery, alerts, failedMessages, clock } = deps;

  async function inventoryAndCompliance() {
    const figures = await inventory.assets.figures(await inventory.moment());
    return { figures, standing: await compliance.standing(figures.isExcluded) };
  }

  return {
    async text() {
      const now = clock.now().getTime();
      const [known, scan, deliveries, failed] = await Promise.all([
        inventoryAndCompliance(),
        discovery.lastEnded(),
        alerts.history.countsSince(new Date(now - DELIVERIES_MS)),
        failedMessages.countSince(new Date(now - MESSAGES_MS)),
      ]);
      return gaugesText([
        ...inventoryGauges(known.figures),
        ...complianceGauges(known.standing),
        ...scanGauges(scan),
        {
          name: "lifecycle_alert_deliveries",
          help: "Alert deliveries made in the last two days, tests left out; of more than 1,000 the newest.",
          samples: eachOf("status", DELIVERY_STATUSES, (status) => deliveries[status]),
        },
        gauge(
          "lifecycle_failed_messages",
          "Messages between the service's own functions that failed for good in the last day; of more than 1,000 these.",
          failed,
        ),
      ]);
    },

    async record() {
      const { figures, standing } = await inventoryAndCompliance();
      for (const type of ASSET_TYPES)
        for (const status of STATUSES) recordMetric("assets.by_status", figures.assets[type][status], { type, status });
      recordMetric("score", ratio(standing.score.score));
    },
  };
}

const gauge = (name: string, help: string, value: number): Gauge => ({ name, help, samples: [{ value }] });

const eachOf = <T extends string>(label: string, values: readonly T[], of: (value: T) => number): Sample[] =>
  values.map((value) => ({ labels: { [label]: value }, value: of(value) }));

/** Returns one series for each possible value: 1 for the present value, else 0. */
const oneOf = <T extends string>(label: string, values: readonly T[], current: T | undefined): Sample[] =>
  eachOf(label, values, (value) => (value === current ? 1 : 0));

/** Unix seconds; 0 if never. */
const seconds = (instant: string | null | undefined): number => (instant ? Date.parse(instant) / SECOND_MS : 0);

/** Removes floating-point noise from a difference. */
const inMilliseconds = (seconds: number): number => Math.round(seconds * SECOND_MS) / SECOND_MS;

/** Converts the API's score, 0 to 100 with one decimal, to 0 to 1. */
const ratio = (score: number): number => Math.round(score * 10) / 1000;

const inventoryGauges = ({ assets, vaults, unreadable }: InventoryCounts): Gauge[] => [
  {
    name: "lifecycle_assets",
    help: "Secrets, keys and certificates by their status now, credentials of applications among them.",
    samples: ASSET_TYPES.flatMap((type) =>
      STATUSES.map((status) => ({ labels: { type, status }, value: assets[type][status] })),
    ),
  },
  gauge("lifecycle_vaults", "Key vaults in the inventory.", vaults),
  gauge(
    "lifecycle_vaults_unreadable",
    "Key vaults in the inventory whose lists could not be read by the last scan.",
    unreadable,
  ),
];

const complianceGauges = ({ score, frameworks }: Awaited<ReturnType<Compliance["standing"]>>): Gauge[] => [
  gauge(
    "lifecycle_compliance_score_ratio",
    "The compliance score, 0 to 1; 1 where nothing was judged yet.",
    ratio(score.score),
  ),
  {
    name: "lifecycle_compliance_framework_score_ratio",
    help: "The score over the checks of one framework, 0 to 1; 1 where nothing was judged yet.",
    samples: frameworks.map((one) => ({ labels: { framework: one.id }, value: ratio(one.score) })),
  },
  {
    name: "lifecycle_compliance_results",
    help: "Pairs of check and resource by result.",
    samples: eachOf("result", ["passed", "failed", "exempted"], (result) => score[result]),
  },
  {
    name: "lifecycle_compliance_violations",
    help: "Open violations by severity, without exempted ones.",
    samples: eachOf("severity", SEVERITIES, (severity) => score.bySeverity[severity]),
  },
  gauge(
    "lifecycle_compliance_evaluated_timestamp_seconds",
    "When any vault was last evaluated, in unix seconds; 0 for never.",
    seconds(score.evaluatedAt),
  ),
];

function scanGauges(scan: EndedScan | undefined): Gauge[] {
  const start = seconds(scan?.startedAt ?? scan?.createdAt);
  const end = seconds(scan?.finishedAt);
  return [
    {
      name: "lifecycle_last_scan_status",
      help: "Result of the last scan: 1 for its status. All are 0 before the first scan.",
      samples: oneOf("status", SCAN_STATUSES.filter(isOver), scan?.status),
    },
    {
      name: "lifecycle_last_scan_mode",
      help: "The mode of the last scan that ended: 1 for its mode. All are 0 before the first.",
      samples: oneOf("mode", SCAN_MODES, scan?.mode),
    },
    gauge("lifecycle_last_scan_start_timestamp_seconds", "When it began, in unix seconds; 0 for never.", start),
    gauge("lifecycle_last_scan_end_timestamp_seconds", "When it ended, in unix seconds; 0 for never.", end),
    gauge("lifecycle_last_scan_duration_seconds", "Duration of the scan.", inMilliseconds(Math.max(0, end - start))),
    gauge("lifecycle_last_scan_vaults", "Vaults it was to read.", scan?.vaultsTotal ?? 0),
    gauge(
      "lifecycle_last_scan_vaults_failed",
      "Vaults it could read nothing of, or left alone since they failed lately.",
      scan?.vaultsFailed ?? 0,
    ),
  ];
}
