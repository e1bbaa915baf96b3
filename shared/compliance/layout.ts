import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import type { Check } from "./check.ts";
import { severityRank } from "./checks/all.ts";

/**
 * Compliance is one partition, so that all rows of a vault change in one transaction. What every answer is computed from
 * (exemptions, the last evaluation, a small row per vault) lies side by side and is read as one range.
 */
export const TABLE = "Compliance";
export const STATE = "state";

const NEW_VIOLATIONS = "0!";
const FINDINGS = "1!";
const ASSET_EXEMPTION = "2!";
const EXEMPTION = "3!";
const VAULT = "5!";
const DETAILS = "6!";
const FENCE = "!fence";

/** Ranges of row keys in STATE. */
export const overviewRange = { partitionKey: STATE, from: EXEMPTION, before: DETAILS };
export const vaultsRange = { partitionKey: STATE, from: VAULT, before: keyEnd(VAULT) };
export const assetExemptionsRange = { partitionKey: STATE, from: ASSET_EXEMPTION, before: EXEMPTION };
export const exemptionsRange = { partitionKey: STATE, from: ASSET_EXEMPTION, before: "4!" };
/** Exemptions of more than an asset, and the last evaluation. */
export const apartRange = { partitionKey: STATE, from: EXEMPTION, before: "4!l" };
export const isVaultKey = (rowKey: string): boolean => rowKey.startsWith(VAULT);
export const isExemptionKey = (rowKey: string): boolean => rowKey.startsWith(EXEMPTION);

/** Rows of which there is one. */
export const EVALUATION_KEY = "4!evaluation";
export const LINES_KEY = "4!lines";
/** What all vaults' results come to, before and behind the rows of those that changed since; see result-totals.ts. */
export const TOTALS_KEY = "4!totals";
export const TOTALS_END_KEY = "4!totals~";
const CHANGED = "4!totals!";
export const changedKey = (vaultName: string): string => `${CHANGED}${vaultName.toLowerCase()}`;
export const isChangedKey = (rowKey: string): boolean => rowKey.startsWith(CHANGED);
export const vaultOfChange = (rowKey: string): string => rowKey.slice(CHANGED.length);
export const changedRange = { partitionKey: STATE, from: CHANGED, before: TOTALS_END_KEY };
/** Exemptions of more than an asset, the last evaluation, the totals and what changed since. */
export const totalsRange = { partitionKey: STATE, from: EXEMPTION, before: `${TOTALS_END_KEY}!` };

/** `!` sorts before every character of a vault's name, so that names sort whole. */
export const vaultStateKey = (vaultName: string): string => `${VAULT}${vaultName.toLowerCase()}`;
const numbered = (index: number): string => String(index).padStart(5, "0");
export const detailsPrefix = (vaultName: string): string => `${DETAILS}${vaultName.toLowerCase()}!`;
/** Before the vault's details, so that one request reads both. */
export const fenceKey = (vaultName: string): string => `${detailsPrefix(vaultName)}${FENCE}`;
/** The vault of a fence's row key; undefined for a row of details. */
export const vaultOfFence = (rowKey: string): string | undefined =>
  rowKey.endsWith(`!${FENCE}`) ? rowKey.slice(DETAILS.length, -FENCE.length - 1) : undefined;
export const detailsRange = { partitionKey: STATE, from: DETAILS, before: keyEnd(DETAILS) };
export const detailsKey = (vaultName: string, chunk: number): string => `${detailsPrefix(vaultName)}${numbered(chunk)}`;
export const findingsPrefix = (check: Check, vaultName: string): string =>
  `${FINDINGS}${severityRank(check)}!${check.id}!${vaultName.toLowerCase()}!`;
export const findingsKey = (check: Check, vaultName: string, chunk: number): string =>
  `${findingsPrefix(check, vaultName)}${numbered(chunk)}`;
export const exemptionKey = (id: string, ofAsset: boolean): string => `${ofAsset ? ASSET_EXEMPTION : EXEMPTION}${id}`;

/**
 * Sorts by when the violations arose.
 *
 * @param write - Of each try of an evaluation another: one that goes on from what the try before wrote finds fewer arisen.
 */
export const newViolationsKey = (at: string, vaultName: string, write: string, chunk: number): string =>
  `${NEW_VIOLATIONS}${at}!${vaultName.toLowerCase()}!${write}!${numbered(chunk)}`;
/** Before every row of violations that arose at this instant or later. */
export const newViolationsFrom = (at: string): string => `${NEW_VIOLATIONS}${at}`;
export const newViolationsRange = { partitionKey: STATE, from: NEW_VIOLATIONS, before: FINDINGS };

/** A failing pair: the check's code, since when (unix seconds), and the facts. */
export const Failure = z.object({ code: z.int(), since: z.int(), evidence: z.string() });
export type Failure = z.infer<typeof Failure>;

/** What scores and lists need of a vault. Only evaluations of that vault write it, so it is never a shared counter. */
export const VaultState = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  /** Packed passed and failed pairs per check; see pack.ts. */
  tallies: z.instanceof(Uint8Array),
  /** The vault's own failures, in the order of the checks. */
  failures: z.array(Failure),
  /** The exemptions of single assets in it, and whether the pair fails now. */
  exemptions: z.array(
    z.object({ id: z.string(), checkId: z.string(), asset: z.string(), until: z.string(), failing: z.boolean() }),
  ),
  /** Who the vault's own tag names as its owner. */
  owners: z.array(z.string()).optional(),
  /** Whether asset checks were evaluated as for a vault with role-based access control. */
  rbac: z.boolean(),
  /** What is known of references to it and to its assets, packed; see references.ts. */
  references: z.instanceof(Uint8Array).optional(),
  /** Unix seconds at which age alone changes the first result. */
  dueAt: z.int().optional(),
  /** Hashes of the vault's details rows: a crash between those and this row shows by them. */
  details: z.array(z.string()),
  createdAt: z.string(),
  evaluatedAt: z.string(),
  /** The evaluation of everything that last covered it. */
  evaluationId: z.string().optional(),
  /** The vault has left; the row stays for its exemptions alone. */
  gone: z.boolean(),
});
export type VaultState = z.infer<typeof VaultState>;
export const VaultStates = entity(TABLE, VaultState);

/** What else is known of a row's items, in their order; see facts.ts. Rows of earlier versions have none. */
const factsColumn = { facts: z.instanceof(Uint8Array).optional() };

/** A vault's assets with their results: what the next evaluation compares with. Deflated JSON; see pack.ts. */
export const Details = entity(TABLE, z.object({ assets: z.instanceof(Uint8Array), ...factsColumn }));

export const ResultFences = fenceEntity(TABLE);

/** Rows of a vault's details range, whichever they are; their keys tell. */
export const DetailsRangeRows = entity(
  TABLE,
  z.object({ ...ResultFences.schema.shape, ...Details.schema.shape }).partial(),
);

/** One check's failing assets in one vault, by name: what lists of violations are read from. Deflated JSON. */
export const Findings = entity(TABLE, z.object({ items: z.instanceof(Uint8Array), ...factsColumn }));

/** Violations that arose in one evaluation of one vault, for who tells people of them. Deflated JSON. */
export const NewViolationRows = entity(
  TABLE,
  z.object({ name: z.string(), vaultId: z.string(), subscriptionId: z.string(), items: z.instanceof(Uint8Array) }),
);

export const SCOPES = ["all", "subscription", "vault", "asset"] as const;
export const EXEMPTION_CATEGORIES = ["waiver", "mitigated"] as const;

export const ExemptionRecord = z.object({
  id: z.string(),
  checkId: z.string(),
  scopeType: z.enum(SCOPES),
  /** Lower case; absent for `all`. */
  scopeId: z.string().optional(),
  category: z.enum(EXEMPTION_CATEGORIES),
  reason: z.string(),
  ticket: z.string().optional(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  /** Absent where a command made it, and in rows written before it was kept. */
  createdByRole: z.enum(ROLES).optional(),
  /** Tells two requests for the same exemption apart. Rows of earlier versions have none. */
  writeId: z.string().optional(),
});
export type ExemptionRecord = z.infer<typeof ExemptionRecord>;
export const Exemptions = entity(TABLE, ExemptionRecord);

/** The partition of all evaluations that were asked for, by id; the newest stands under EVALUATION_KEY, too. */
export const EVALUATIONS = "evaluations";

/** An evaluation of everything that was asked for. */
export const EvaluationRecord = z.object({
  evaluationId: z.string(),
  requestedAt: z.string(),
  requestedBy: z.string(),
  /** Vaults it covers, once it is planned. */
  vaults: z.int().optional(),
  /** Vaults it could not evaluate, in five tries. */
  failedVaults: z.array(z.string()),
});
export type EvaluationRecord = z.infer<typeof EvaluationRecord>;
export const Evaluations = entity(TABLE, EvaluationRecord);

/** Where the lines of expiry stood when everything that had crossed them was last sent to be evaluated. */
export const LinesRecord = z.object({
  at: z.string(),
  criticalDays: z.int(),
  warningDays: z.int(),
  /** Evaluation was switched off since: everything may have changed. */
  paused: z.boolean(),
  /** What the results were judged by: see `EDITION`. Rows of earlier versions have none. */
  edition: z.string().optional(),
});
export type LinesRecord = z.infer<typeof LinesRecord>;
export const Lines = entity(TABLE, LinesRecord);

export const VaultSummary = VaultState.pick({
  name: true,
  subscriptionId: true,
  tallies: true,
  failures: true,
  owners: true,
  exemptions: true,
  createdAt: true,
  evaluatedAt: true,
  evaluationId: true,
  gone: true,
});
export type VaultSummary = z.infer<typeof VaultSummary>;

/** Rows of the overview's range, whichever they are; their keys tell. */
export const OverviewRows = entity(
  TABLE,
  z.object({ ...EvaluationRecord.shape, ...ExemptionRecord.shape, ...VaultSummary.shape }).partial(),
);
export const overviewMembers = [
  ...new Set([
    ...(Object.keys(VaultSummary.shape) as (keyof VaultSummary)[]),
    ...(Object.keys(ExemptionRecord.shape) as (keyof ExemptionRecord)[]),
    ...(Object.keys(EvaluationRecord.shape) as (keyof EvaluationRecord)[]),
  ]),
];
export const parseSummary = (row: unknown): VaultSummary => VaultSummary.parse(row);

/** What all vaults' results come to. */
export const TotalsRecord = z.object({
  /** New with each write. The row behind the changed vaults has the same one: so both ends of a reading are of one write. */
  sequence: z.string(),
  /** Deflated; see result-totals.ts. Absent where they are too large, or not whole yet: then nobody goes by them. */
  totals: z.instanceof(Uint8Array).optional(),
});
export type TotalsRecord = z.infer<typeof TotalsRecord>;
export const TotalsRows = entity(TABLE, TotalsRecord);
export const TotalsEnd = entity(TABLE, TotalsRecord.pick({ sequence: true }));

/** That a vault's results are not as the totals count them; see changed-results.ts. */
export const ChangedResults = z.object({
  /** As the totals count it, and as its row has it; packed, nothing where they don't and where it is gone. */
  before: z.instanceof(Uint8Array).optional(),
  now: z.instanceof(Uint8Array).optional(),
  /** How the totals count it can't be told: then all vaults' rows are read. */
  unknown: z.boolean().optional(),
});
export type ChangedResults = z.infer<typeof ChangedResults>;
export const ChangedRows = entity(TABLE, ChangedResults);

/** Rows of the range of totals, whichever they are; their keys tell. */
export const TotalsRangeRows = entity(
  TABLE,
  z
    .object({
      ...EvaluationRecord.shape,
      ...ExemptionRecord.shape,
      ...TotalsRecord.shape,
      ...ChangedResults.shape,
    })
    .partial(),
);

/** The score at the end of a day, or so far. */
export const HISTORY = "history";
const DayTotals = z.object({ score: z.number(), passed: z.int(), failed: z.int(), total: z.int() });
export type DayTotals = z.infer<typeof DayTotals>;
export const DayScores = entity(
  TABLE,
  DayTotals.extend({
    date: z.string(),
    /** By framework. Rows of earlier versions have none, and no edition. */
    frameworks: z.record(z.string(), DayTotals).optional(),
    edition: z.int().optional(),
  }),
);

/** The one queue of compliance. A message may come twice; each does what it says again without harm. */
export const QUEUE = "compliance-evaluate";
export const EvaluateMessage = z.discriminatedUnion("kind", [
  /** Send one message for each vault. */
  z.object({ kind: z.literal("everything"), evaluationId: z.string().optional() }),
  /** A whole vault, from the inventory. */
  z.object({ kind: z.literal("vault"), vault: z.string(), evaluationId: z.string().optional() }),
  /** Some of a vault's assets, as `<type>.<name>`. */
  z.object({
    kind: z.literal("assets"),
    vault: z.string(),
    assets: z.array(z.string()),
    /** References to them changed: those of the vault are asked for anew. */
    references: z.boolean().optional(),
  }),
  /** What of a vault is due by age. */
  z.object({ kind: z.literal("due"), vault: z.string() }),
  /** Find what time or the policy's lines have passed. The days are those that held when it was sent. */
  z.object({
    kind: z.literal("crossed"),
    criticalDays: z.int().optional(),
    warningDays: z.int().optional(),
  }),
]);
export type EvaluateMessage = z.infer<typeof EvaluateMessage>;
