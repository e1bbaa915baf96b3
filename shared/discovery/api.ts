import * as z from "zod";
import { pageOf } from "../http/paging.ts";
import { subscriptionId } from "../inventory/api.ts";
import { VaultFailure } from "../inventory/vault.ts";
import type { ScanProgress } from "./discovery.ts";
import { SCAN_MODES, SCAN_STATUSES, type ScanRecord, Tally, VAULT_OUTCOMES, type VaultOutcome } from "./scan.ts";

/** Scans as the API takes and shows them. */

const instant = z.iso.datetime();

export const ScanRequest = z
  .strictObject({
    mode: z.enum(SCAN_MODES).meta({
      description:
        "`full` reads all details, `delta` only of what is new or changed, `force` is `full` that also starts while another scan runs and tries vaults again that failed lately.",
    }),
    subscriptions: z
      .array(subscriptionId)
      .max(1000)
      .optional()
      .meta({ description: "Only these, which must be watched; all that are watched when left out or empty." }),
  })
  .meta({ id: "ScanRequest" });

const scanFields = {
  scanId: z.string(),
  mode: z.enum(SCAN_MODES).meta({
    description:
      "`full` reads all details, one by the schedule those that are due; `delta` only what changed; `force` all, also of vaults that failed lately.",
  }),
  subscriptions: z.array(z.string()).nullable().meta({ description: "As asked for; null for all." }),
  status: z.enum(SCAN_STATUSES).meta({
    description:
      "`partial`: some subscriptions or vaults could not be read. `timedOut`: the scan did not end before its deadline.",
  }),
  trigger: z.enum(["api", "schedule"]).meta({ description: "Whether a call or the schedule began it." }),
  requestedBy: z.string(),
  createdAt: instant,
  startedAt: instant.nullable(),
  finishedAt: instant.nullable(),
  deadline: instant.nullable(),
  failure: VaultFailure.nullable().meta({
    description:
      "Why a scan failed: what kept it from its vaults, or the first of the failures when none could be read.",
  }),
};
export const Scan = z.object(scanFields).meta({ id: "Scan" });
export const ScanProgressView = z
  .object({
    ...scanFields,
    progress: z
      .object({
        vaultsTotal: z.int().meta({ description: "Vaults to read; 0 until it is planned." }),
        vaultsDone: z.int().meta({ description: "Vaults read, the failed among them." }),
        vaultsFailed: z.int().meta({ description: "Vaults of which something could not be read." }),
        assetsFound: z.int().meta({ description: "Assets listed." }),
        assetsAdded: z.int().meta({ description: "Assets that were not known before." }),
        assetsUpdated: z.int().meta({ description: "Assets that changed." }),
        assetsRemoved: z.int().meta({ description: "Assets that are gone." }),
      })
      .meta({ description: "How far it is." }),
    subscriptionOutcomes: z
      .array(
        z.object({
          subscriptionId: z.string(),
          name: z.string().nullable().meta({ description: "Its display name in Azure, where the scan read it." }),
          vaults: z.int(),
          failure: VaultFailure.nullable(),
        }),
      )
      .meta({
        description:
          "Outcome of each subscription. Those whose vaults could not be listed come first, each with the reason and what to do. The id `unreadable` stands for an entry in Azure's list of subscriptions that could not be read.",
      }),
  })
  .meta({ id: "ScanProgress" });
export const VaultResult = z
  .object({
    vaultName: z.string(),
    subscriptionId: z.string(),
    outcome: z
      .enum(VAULT_OUTCOMES)
      .meta({ description: "`failed`: nothing of it could be read. `partial`: something could not be read." }),
    failures: z.array(VaultFailure.extend({ list: z.string().meta({ description: "What could not be read." }) })).meta({
      description:
        "What could not be read, by `list`: `secrets`, `keys`, `certificates`, `rotationPolicies` of keys, `diagnosticSettings`, or `vault` for the vault as a whole.",
    }),
    tally: Tally.meta({ description: "How many assets were found, added, updated and removed." }),
    added: z.array(z.string()).meta({ description: "Asset ids; at most 1,000 are named, the tally counts all." }),
    updated: z.array(z.string()).meta({ description: "Ids of assets that changed; at most 1,000." }),
    removed: z.array(z.string()).meta({ description: "Ids of assets that are gone; at most 1,000." }),
    finishedAt: instant,
  })
  .meta({ id: "VaultResult" });
export const ScanResults = pageOf(VaultResult, "VaultResultList")
  .extend({ scan: ScanProgressView.meta({ description: "The scan itself." }) })
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
