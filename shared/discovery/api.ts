import * as z from "zod";
import { subscriptionId } from "../inventory/api.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { pageOf } from "../platform/http/paging.ts";
import type { ScanProgress } from "./discovery.ts";
import { SCAN_MODES, SCAN_STATUSES, type ScanRecord, Tally, VAULT_OUTCOMES, type VaultOutcome } from "./scan.ts";

/** Schemas and views of scans in the API. */

const instant = z.iso.datetime();

export const ScanRequest = z
  .strictObject({
    mode: z.enum(SCAN_MODES).meta({
      description:
        "`full` reads all details. `delta` reads only new or changed assets. `force` is `full`, but also starts while another scan is in progress, and retries vaults that failed recently.",
    }),
    subscriptions: z
      .array(subscriptionId)
      .max(1000)
      .optional()
      .meta({ description: "Subscription IDs to scan; they must be watched. Default: all watched subscriptions." }),
  })
  .meta({ id: "ScanRequest" });

const scanFields = {
  scanId: z.string(),
  mode: z.enum(SCAN_MODES).meta({
    description:
      "`full` reads all details (for scheduled scans, the details that are due). `delta` reads only changes. `force` reads everything, including vaults that failed recently.",
  }),
  subscriptions: z.array(z.string()).nullable().meta({ description: "Requested subscription IDs. Null for all." }),
  status: z.enum(SCAN_STATUSES).meta({
    description:
      "`partial`: some subscriptions or vaults could not be read. `timedOut`: the scan did not end before its deadline.",
  }),
  trigger: z.enum(["api", "schedule"]).meta({ description: "Whether a call or the schedule started the scan." }),
  requestedBy: z.string(),
  createdAt: instant,
  startedAt: instant.nullable(),
  finishedAt: instant.nullable(),
  deadline: instant.nullable(),
  failure: VaultFailure.nullable().meta({
    description:
      "Why the scan failed: the reason that prevented it from reading vaults, or the first failure if no vault could be read.",
  }),
};
export const Scan = z.object(scanFields).meta({ id: "Scan" });
export const ScanProgressView = z
  .object({
    ...scanFields,
    progress: z
      .object({
        vaultsTotal: z.int().meta({ description: "Number of vaults to read. 0 until the scan is planned." }),
        vaultsDone: z.int().meta({ description: "Number of vaults processed, including failed ones." }),
        vaultsFailed: z.int().meta({ description: "Number of vaults that could not be read completely." }),
        assetsFound: z.int().meta({ description: "Number of assets listed." }),
        assetsAdded: z.int().meta({ description: "Number of assets added." }),
        assetsUpdated: z.int().meta({ description: "Number of assets updated." }),
        assetsRemoved: z.int().meta({ description: "Number of assets removed." }),
      })
      .meta({ description: "Progress of the scan." }),
    subscriptionOutcomes: z
      .array(
        z.object({
          subscriptionId: z.string(),
          name: z.string().nullable().meta({ description: "Display name in Azure, if the scan read it." }),
          vaults: z.int(),
          failure: VaultFailure.nullable(),
        }),
      )
      .meta({
        description:
          "Results by subscription. Subscriptions whose vaults could not be listed come first, with the reason and the fix. The ID `unreadable` stands for an entry in the list of subscriptions from Azure that could not be read.",
      }),
  })
  .meta({ id: "ScanProgress" });
export const VaultResult = z
  .object({
    vaultName: z.string(),
    subscriptionId: z.string(),
    outcome: z
      .enum(VAULT_OUTCOMES)
      .meta({ description: "`failed`: nothing could be read. `partial`: something could not be read." }),
    failures: z
      .array(VaultFailure.extend({ list: z.string().meta({ description: "List that could not be read." }) }))
      .meta({
        description:
          "Lists that could not be read, each with the reason and the fix. `list` is `secrets`, `keys`, `certificates`, `rotationPolicies` of keys, `diagnosticSettings`, or `vault` for the whole vault.",
      }),
    tally: Tally.meta({ description: "Numbers of assets found, added, updated and removed." }),
    added: z.array(z.string()).meta({ description: "IDs of added assets, up to 1,000; the counts include all." }),
    updated: z.array(z.string()).meta({ description: "IDs of updated assets, up to 1,000." }),
    removed: z.array(z.string()).meta({ description: "IDs of removed assets, up to 1,000." }),
    finishedAt: instant,
  })
  .meta({ id: "VaultResult" });
export const ScanResults = pageOf(VaultResult, "VaultResultList")
  .extend({ scan: ScanProgressView.meta({ description: "The scan." }) })
  .meta({ id: "ScanResults" });

export const scanView = (scan: ScanRecord): z.infer<typeof Scan> => ({
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

export const progressView = (scan: ScanProgress): z.infer<typeof ScanProgressView> => ({
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
  subscriptionOutcomes: scan.subscriptionOutcomes
    .map(({ subscriptionId, name, vaults, failure }) => ({
      subscriptionId,
      name: name ?? null,
      vaults,
      failure: failure ?? null,
    }))
    .sort((a, b) => Number(a.failure === null) - Number(b.failure === null)),
});

export const vaultResultView = (outcome: VaultOutcome): z.infer<typeof VaultResult> => ({
  vaultName: outcome.vaultName,
  subscriptionId: outcome.subscriptionId,
  outcome: outcome.outcome,
  failures: outcome.failures.map(({ list, code, message, remedy, at }) => ({ list, code, message, remedy, at })),
  tally: outcome.tally,
  added: outcome.added,
  updated: outcome.updated,
  removed: outcome.removed,
  finishedAt: outcome.finishedAt,
});
