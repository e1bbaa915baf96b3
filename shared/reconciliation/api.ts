import * as z from "zod";
import type { ReconciliationStatus } from "./reconciliation.ts";
import { STAGES, type WalkRecord } from "./walk-record.ts";

/*
 * Schema of the answer of GET /system/reconciliation. A walk is one pass over all stored rows; the API calls it a run. Three
 * published members are named `unreadable`: `mended.unreadable` counts rows that the walk rebuilt, the walk's `unreadable` rows
 * that it could not rebuild, and the `unreadable` of the whole answer says that the record of a walk itself is not valid.
 */

const WalkView = z
  .object({
    walkId: z.string().meta({ description: "ID of the verification run." }),
    startedAt: z.iso.datetime(),
    finishedAt: z.iso.datetime().nullable().meta({ description: "Null while the run is in progress." }),
    stage: z.enum(STAGES).meta({ description: "Current or last stage." }),
    vaults: z.int().meta({ description: "Number of vaults checked so far." }),
    rows: z.int().meta({ description: "Number of rows compared so far." }),
    mended: z
      .object({
        missing: z.int().meta({ description: "Number of missing rows." }),
        extra: z.int().meta({ description: "Number of unexpected rows." }),
        stale: z.int().meta({ description: "Number of rows with different content." }),
        unreadable: z.int().meta({ description: "Number of rows that no version of this service wrote." }),
        listings: z.int().meta({ description: "Number of vault lists that the next scan reads again." }),
        compliance: z.int().meta({ description: "Number of vaults whose compliance results were rewritten." }),
      })
      .meta({
        description:
          "Differences that were repaired. The audit log contains each as inventory.mended, compliance.mended, scans.mended, audit.indexMended or storage.mended.",
      }),
    awaiting: z.int().meta({ description: "Number of rows that wait for the next listing of their vault." }),
    // `vault` is also the name of a check that compares other rows than those of a vault.
    left: z
      .array(
        z.object({
          vault: z.string().meta({ description: "Name of the vault, or of another check." }),
          reason: z.string(),
        }),
      )
      .meta({
        description: "Vaults and other checks that are left to the next run, with the reason. Up to 100 are listed.",
      }),
    unverified: z.int().meta({
      description:
        "Number of signed rows that can't be read or whose signature is wrong. They are not used and not removed. The audit log contains each as storage.rowUnreadable.",
    }),
    unreadable: z.int().meta({
      description:
        "Number of other rows that can't be read and that can't be rebuilt from other rows. The audit log contains each as storage.rowUnreadable. Restore these rows from a backup, or delete them.",
    }),
    leftTotal: z.int().meta({ description: "Number of vaults and other checks that are left to the next run." }),
    startedOver: z.boolean().meta({
      description:
        "True when the record of the previous run could not be read, so this run started from the beginning.",
    }),
  })
  .meta({ id: "ReconciliationWalk" });

export const ReconciliationView = z
  .object({
    newest: WalkView.nullable().meta({
      description: "The run in progress, or the last run. Null before the first run.",
    }),
    completed: WalkView.nullable().meta({ description: "The last completed run." }),
    unreadable: z.boolean().meta({
      description:
        "True when the record of a run is not valid and was left out. If it was the newest, the next run starts from the beginning.",
    }),
  })
  .meta({ id: "Reconciliation" });

/** Returns the status of the reconciliation in the form of the API. */
export const reconciliationView = ({
  newest,
  completed,
  unreadable,
}: ReconciliationStatus): z.infer<typeof ReconciliationView> => ({
  newest: newest ? walkView(newest) : null,
  completed: completed ? walkView(completed) : null,
  unreadable,
});

const walkView = (walk: WalkRecord): z.infer<typeof WalkView> => ({
  walkId: walk.walkId,
  startedAt: walk.startedAt,
  finishedAt: walk.finishedAt ?? null,
  stage: walk.stage,
  vaults: walk.vaults,
  rows: walk.rows,
  mended: walk.mended,
  awaiting: walk.awaiting,
  left: walk.left,
  unverified: walk.unverified ?? 0,
  unreadable: walk.unreadable ?? 0,
  leftTotal: walk.leftTotal,
  startedOver: walk.startedOver === true,
});
