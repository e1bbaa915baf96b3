import * as z from "zod";
import type { ReconciliationStatus } from "./reconciliation.ts";
import { STAGES, type WalkRecord } from "./walk.ts";

const WalkView = z
  .object({
    walkId: z.string().meta({ description: "The walk's id." }),
    startedAt: z.iso.datetime(),
    finishedAt: z.iso.datetime().nullable().meta({ description: "null while it is under way." }),
    stage: z.enum(STAGES).meta({ description: "What it looks at now, or looked at last." }),
    vaults: z.int().meta({ description: "Vaults looked at so far." }),
    rows: z.int().meta({ description: "Index rows compared so far." }),
    mended: z
      .object({
        missing: z.int().meta({ description: "Rows that were not there and should be." }),
        extra: z.int().meta({ description: "Rows that should not be there." }),
        stale: z.int().meta({ description: "Rows that held something else." }),
        unreadable: z.int().meta({ description: "Rows that no version of this service wrote." }),
        listings: z.int().meta({ description: "Lists of a vault that the next scan reads again." }),
        compliance: z.int().meta({ description: "Vaults whose compliance results were written anew." }),
      })
      .meta({
        description: "What was wrong and is mended. The audit log names each: inventory.mended, compliance.mended.",
      }),
    awaiting: z.int().meta({ description: "Rows left until their vault was listed again." }),
    left: z
      .array(z.object({ vault: z.string().meta({ description: "The vault's name." }), reason: z.string() }))
      .meta({ description: "Vaults left to the next walk, and why; at most 100 are named." }),
    leftTotal: z.int().meta({ description: "How many vaults were left to the next walk." }),
    startedOver: z.boolean().meta({
      description: "The record of the walk before could not be read, so that this one began at the beginning.",
    }),
  })
  .meta({ id: "ReconciliationWalk" });

export const ReconciliationView = z
  .object({
    newest: WalkView.nullable().meta({ description: "The walk under way, or the last one; null before the first." }),
    completed: WalkView.nullable().meta({ description: "The last walk that came to its end." }),
    unreadable: z.boolean().meta({
      description:
        "A walk's record is not what this service wrote, and is left out. Where it was that of the newest, the next run begins at the beginning.",
    }),
  })
  .meta({ id: "Reconciliation" });

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
  leftTotal: walk.leftTotal,
  startedOver: walk.startedOver === true,
});
