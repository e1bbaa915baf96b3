import type { Alerts } from "../alerts/alerts.ts";
import { DELIVERY_STATUSES } from "../alerts/delivery.ts";
import { SEVERITIES } from "../compliance/check.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { Discovery, EndedScan } from "../discovery/discovery.ts";
import { hasEnded, SCAN_MODES, SCAN_STATUSES } from "../discovery/scan.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { STATUSES } from "../inventory/asset-status.ts";
import type { Inventory } from "../inventory/inventory.ts";
import type { InventoryCounts } from "../inventory/query.ts";
import type { FailedMessages } from "../messages/failed-messages.ts";
import type { Clock } from "../platform/runtime.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import type { AuditStreams } from "../siem/siem.ts";
import { MAX_LISTED, type UnreadableRows } from "../unreadable-rows/unreadable-rows.ts";
import { type Gauge, gaugesText, type Sample } from "./prometheus-text.ts";

/**
 * Alert deliveries are counted for two days from their creation. A delivery is retried for up to 21 hours, so its final failure
 * is visible for at least a day.
 */
const DELIVERY_WINDOW_MS = 2 * DAY_MS;
/** Failed messages are counted for a day. */
const MESSAGE_WINDOW_MS = DAY_MS;

/** Metrics of the service for monitoring systems. GET /metrics calls `text`, and a timer calls `record`. */
export interface Metrics {
  /**
   * Returns the metrics in the text format of Prometheus. Values are read from rows at each call, so all instances return the
   * same, and each series exists even before the first scan. Costs at most eleven requests for up to 1,000 vaults, two more
   * for each further 1,000, and with audit streams two more and up to three for each stream. Label values are from fixed lists or IDs of audit streams, never
   * names.
   */
  text(): Promise<string>;
  /** Sends the numbers of assets by status and the score to telemetry. Reads the same rows for them as `text`. */
  record(): Promise<void>;
}

export function createMetrics(deps: {
  inventory: Pick<Inventory, "assets" | "moment">;
  compliance: Pick<Compliance, "scoreAndFrameworks">;
  discovery: Pick<Discovery, "lastEnded">;
  alerts: Pick<Alerts, "history" | "held">;
  auditStreams: Pick<AuditStreams, "all" | "states">;
  failedMessages: Pick<FailedMessages, "countSince">;
  unreadableRows: Pick<UnreadableRows, "count">;
  clock: Clock;
}): Metrics {
  const { inventory, compliance, discovery, alerts, auditStreams, failedMessages, unreadableRows, clock } = deps;

  /** `moment` is the time with the thresholds of the settings, which decide each asset's status. */
  async function readInventoryAndCompliance() {
    const figures = await inventory.assets.figures(await inventory.moment());
    return { figures, compliance: await compliance.scoreAndFrameworks(figures.isExcluded) };
  }

  return {
    async text() {
      const now = clock.now().getTime();
      const [counts, scan, deliveries, held, failed, unreadable, streams] = await Promise.all([
        readInventoryAndCompliance(),
        discovery.lastEnded(),
        alerts.history.countsSince(new Date(now - DELIVERY_WINDOW_MS)),
        alerts.held.count(),
        failedMessages.countSince(new Date(now - MESSAGE_WINDOW_MS)),
        unreadableRows.count(),
        auditStreams.all().then((streams) => auditStreams.states(streams)),
      ]);
      return gaugesText([
        ...inventoryGauges(counts.figures),
        ...complianceGauges(counts.compliance),
        ...scanGauges(scan),
        {
          name: "lifecycle_alert_deliveries",
          help: "Alert deliveries that were created in the last two days, without test deliveries. At most the newest 1,000.",
          samples: samplesFor("status", DELIVERY_STATUSES, (status) => deliveries[status]),
        },
        gauge(
          "lifecycle_alert_deliveries_held",
          "Alert deliveries of any age that are held after a restore until an administrator sends or drops them.",
          held,
        ),
        gauge(
          "lifecycle_failed_messages",
          "Messages between the service's own functions that failed for good in the last day, at most 1,000.",
          failed,
        ),
        gauge(
          "lifecycle_unreadable_rows",
          `Rows in the service's own tables that can't be read. At most ${MAX_LISTED} are counted.`,
          unreadable.listed,
        ),
        ...streamGauges(streams, now),
      ]);
    },

    async record() {
      const { figures, compliance } = await readInventoryAndCompliance();
      for (const type of ASSET_TYPES)
        for (const status of STATUSES) recordMetric("assets.by_status", figures.assets[type][status], { type, status });
      recordMetric("score", ratio(compliance.score.score));
    },
  };
}

const gauge = (name: string, help: string, value: number): Gauge => ({ name, help, samples: [{ value }] });

/** Returns one sample for each value of a label. */
const samplesFor = <T extends string>(label: string, values: readonly T[], numberOf: (value: T) => number): Sample[] =>
  values.map((value) => ({ labels: { [label]: value }, value: numberOf(value) }));

/** Returns one series for each possible value: 1 for the current value, 0 for the others. */
const samplesOfState = <T extends string>(label: string, values: readonly T[], current: T | undefined): Sample[] =>
  samplesFor(label, values, (value) => (value === current ? 1 : 0));

/** Converts a time to Unix seconds. 0 if there is none. */
const seconds = (instant: string | null | undefined): number => (instant ? Date.parse(instant) / SECOND_MS : 0);

/** Rounds seconds to milliseconds, which removes floating-point noise from a difference. */
const roundToMilliseconds = (seconds: number): number => Math.round(seconds * SECOND_MS) / SECOND_MS;

/** Converts the API's score, 0 to 100 with one decimal, to 0 to 1. */
const ratio = (score: number): number => Math.round(score * 10) / 1000;

const inventoryGauges = ({ assets, vaults, unreadable }: InventoryCounts): Gauge[] => [
  {
    name: "lifecycle_assets",
    help: "Secrets, keys and certificates by their current status, including credentials of applications.",
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

const complianceGauges = ({ score, frameworks }: Awaited<ReturnType<Compliance["scoreAndFrameworks"]>>): Gauge[] => [
  gauge(
    "lifecycle_compliance_score_ratio",
    "The compliance score, 0 to 1. 1 before the first evaluation.",
    ratio(score.score),
  ),
  {
    name: "lifecycle_compliance_framework_score_ratio",
    help: "The score of one framework's checks, 0 to 1. 1 before the first evaluation.",
    samples: frameworks.map((framework) => ({ labels: { framework: framework.id }, value: ratio(framework.score) })),
  },
  {
    name: "lifecycle_compliance_results",
    help: "Pairs of check and resource by result.",
    samples: samplesFor("result", ["passed", "failed", "exempted"], (result) => score[result]),
  },
  {
    name: "lifecycle_compliance_violations",
    help: "Open violations by severity, without exempted ones.",
    samples: samplesFor("severity", SEVERITIES, (severity) => score.bySeverity[severity]),
  },
  gauge(
    "lifecycle_compliance_evaluated_timestamp_seconds",
    "Time of the last evaluation of any vault, in Unix seconds. 0 if there was none.",
    seconds(score.evaluatedAt),
  ),
];

/** @param now - In milliseconds since 1970. */
const streamGauges = (streams: Awaited<ReturnType<AuditStreams["states"]>>, now: number): Gauge[] => [
  {
    name: "lifecycle_audit_stream_lag_entries",
    help: "Sealed audit entries that an audit stream has not sent.",
    samples: streams.map(({ streamId, lag }) => ({ labels: { stream: streamId }, value: lag.entries ?? 0 })),
  },
  {
    name: "lifecycle_audit_stream_lag_seconds",
    help: "Age of the oldest sealed entry or violation that an audit stream has not sent, rounded up to its interval of ten minutes. 0 if everything is sent.",
    samples: streams.map(({ streamId, lag }) => ({
      labels: { stream: streamId },
      value: lag.since === null ? 0 : roundToMilliseconds(Math.max(0, now - Date.parse(lag.since)) / SECOND_MS),
    })),
  },
  {
    name: "lifecycle_audit_stream_failing",
    help: "1 if the receiver of an audit stream did not accept the last batch, or another program changed the stream's position. Otherwise 0.",
    samples: streams.map(({ streamId, state }) => ({
      labels: { stream: streamId },
      value: state === "failing" || state === "broken" ? 1 : 0,
    })),
  },
];

function scanGauges(scan: EndedScan | undefined): Gauge[] {
  const start = seconds(scan?.startedAt ?? scan?.createdAt);
  const end = seconds(scan?.finishedAt);
  return [
    {
      name: "lifecycle_last_scan_status",
      help: "Result of the last scan: 1 for its status. All are 0 before the first scan.",
      samples: samplesOfState("status", SCAN_STATUSES.filter(hasEnded), scan?.status),
    },
    {
      name: "lifecycle_last_scan_mode",
      help: "Mode of the last scan: 1 for its mode. All are 0 before the first scan.",
      samples: samplesOfState("mode", SCAN_MODES, scan?.mode),
    },
    gauge(
      "lifecycle_last_scan_start_timestamp_seconds",
      "Start of the last scan, in Unix seconds. 0 if there was none.",
      start,
    ),
    gauge(
      "lifecycle_last_scan_end_timestamp_seconds",
      "End of the last scan, in Unix seconds. 0 if there was none.",
      end,
    ),
    gauge(
      "lifecycle_last_scan_duration_seconds",
      "Duration of the last scan.",
      roundToMilliseconds(Math.max(0, end - start)),
    ),
    gauge("lifecycle_last_scan_vaults", "Vaults in the last scan.", scan?.vaultsTotal ?? 0),
    gauge(
      "lifecycle_last_scan_vaults_failed",
      "Vaults that the last scan could not read, or skipped because they had failed recently.",
      scan?.vaultsFailed ?? 0,
    ),
  ];
}
