import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import type { Check } from "./check.ts";
import { severityRank } from "./checks/all.ts";

/**
 * Rows and keys of the table Compliance. One partition contains everything, so that all rows of a vault change in one
 * transaction. The rows that every response needs (exemptions, the last evaluation, a small row per vault) are adjacent and are
 * read as one range.
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

/** Rows that exist once. */
export const EVALUATION_KEY = "4!evaluation";
export const LINES_KEY = "4!lines";
/** Keys of the totals of all vaults' results, before and after the marks of vaults that changed since; see result-totals.ts. */
export const TOTALS_KEY = "4!totals";
export const TOTALS_END_KEY = "4!totals~";
const CHANGED = "4!totals!";
export const changedKey = (vaultName: string): string => `${CHANGED}${vaultName.toLowerCase()}`;
export const isChangedKey = (rowKey: string): boolean => rowKey.startsWith(CHANGED);
export const vaultOfChange = (rowKey: string): string => rowKey.slice(CHANGED.length);
export const changedRange = { partitionKey: STATE, from: CHANGED, before: TOTALS_END_KEY };
/** Exemptions of more than an asset, the last evaluation, the totals and the changes since. */
export const totalsRange = { partitionKey: STATE, from: EXEMPTION, before: `${TOTALS_END_KEY}!` };

/** `!` sorts before every character of a vault's name, so that whole names are compared. */
export const vaultStateKey = (vaultName: string): string => `${VAULT}${vaultName.toLowerCase()}`;
const numbered = (index: number): string => String(index).padStart(5, "0");
export const detailsPrefix = (vaultName: string): string => `${DETAILS}${vaultName.toLowerCase()}!`;
/** Sorts before the vault's details, so that one request reads both. */
export const fenceKey = (vaultName: string): string => `${detailsPrefix(vaultName)}${FENCE}`;
/** Returns the vault of a fence's row key. Undefined for a row of details. */
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
 * Sorts by the time at which the violations arose.
 *
 * @param write - Different for each attempt of an evaluation, because an attempt that continues after the previous one finds
 * fewer new violations.
 */
export const newViolationsKey = (at: string, vaultName: string, write: string, chunk: number): string =>
  `${NEW_VIOLATIONS}${at}!${vaultName.toLowerCase()}!${write}!${numbered(chunk)}`;
/** Sorts before every row of violations that arose at this time or later. */
export const newViolationsFrom = (at: string): string => `${NEW_VIOLATIONS}${at}`;
export const newViolationsRange = { partitionKey: STATE, from: NEW_VIOLATIONS, before: FINDINGS };

/** A failing pair: the check's code, since when (unix seconds), and the evidence. */
export const Failure = z.object({ code: z.int(), since: z.int(), evidence: z.string() });
export type Failure = z.infer<typeof Failure>;

/** The data of a vault that scores and lists need. Only evaluations of that vault write it, so it is never a shared counter. */
export const VaultState = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  /** Packed numbers of passed and failed pairs by check; see packed-results.ts. */
  tallies: z.instanceof(Uint8Array),
  /** The vault's own failures, in the order of the checks. */
  failures: z.array(Failure),
  /** Exemptions of single assets in the vault, and whether the pair currently fails. */
  exemptions: z.array(
    z.object({ id: z.string(), checkId: z.string(), asset: z.string(), until: z.string(), failing: z.boolean() }),
  ),
  /** Owner according to the vault's own tag. */
  owners: z.array(z.string()).optional(),
  /** Whether asset checks were evaluated as for a vault with role-based access control. */
  rbac: z.boolean(),
  /** Known references to the vault and its assets, packed; see references.ts. */
  references: z.instanceof(Uint8Array).optional(),
  /** Unix seconds at which age changes the first result. */
  dueAt: z.int().optional(),
  /** Hashes of the vault's details rows. They reveal a crash between the writes of those rows and of this one. */
  details: z.array(z.string()),
  createdAt: z.string(),
  evaluatedAt: z.string(),
  /** The last evaluation of everything that covered the vault. */
  evaluationId: z.string().optional(),
  /** True if the vault was removed. The row stays only for its exemptions. */
  gone: z.boolean(),
});
export type VaultState = z.infer<typeof VaultState>;
export const VaultStates = entity(TABLE, VaultState);

/** Further data of a row's items, in their order; see finding-facts.ts. Rows of earlier versions have none. */
const factsColumn = { facts: z.instanceof(Uint8Array).optional() };

/** A vault's assets with their results, with which the next evaluation compares. Compressed JSON; see packed-results.ts. */
export const Details = entity(TABLE, z.object({ assets: z.instanceof(Uint8Array), ...factsColumn }));

export const ResultFences = fenceEntity(TABLE);

/** All kinds of rows in a vault's details range, distinguished by their keys. */
export const DetailsRangeRows = entity(
  TABLE,
  z.object({ ...ResultFences.schema.shape, ...Details.schema.shape }).partial(),
);

/** Failing assets of one check in one vault, by name, for lists of violations. Compressed JSON. */
export const Findings = entity(TABLE, z.object({ items: z.instanceof(Uint8Array), ...factsColumn }));

/** Violations that arose in one evaluation of one vault, for alerts. Compressed JSON. */
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
  /** Lower case. Absent for `all`. */
  scopeId: z.string().optional(),
  category: z.enum(EXEMPTION_CATEGORIES),
  reason: z.string(),
  ticket: z.string().optional(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  /** Absent for exemptions created by a command, and in rows of earlier versions. */
  createdByRole: z.enum(ROLES).optional(),
  /** Distinguishes two requests for the same exemption. Rows of earlier versions have none. */
  writeId: z.string().optional(),
});
export type ExemptionRecord = z.infer<typeof ExemptionRecord>;
export const Exemptions = entity(TABLE, ExemptionRecord);

/** Partition of all requested evaluations, by ID. The newest also has a copy under EVALUATION_KEY. */
export const EVALUATIONS = "evaluations";

/** A requested evaluation of everything. */
export const EvaluationRecord = z.object({
  evaluationId: z.string(),
  requestedAt: z.string(),
  requestedBy: z.string(),
  /** Number of vaults, once it is planned. */
  vaults: z.int().optional(),
  /** Vaults that it could not evaluate in five attempts. */
  failedVaults: z.array(z.string()),
});
export type EvaluationRecord = z.infer<typeof EvaluationRecord>;
export const Evaluations = entity(TABLE, EvaluationRecord);

/** The time and thresholds for which assets that passed a threshold were last sent for evaluation. */
export const LinesRecord = z.object({
  at: z.string(),
  criticalDays: z.int(),
  warningDays: z.int(),
  /** True if evaluation was turned off since. Then everything may have changed. */
  paused: z.boolean(),
  /** Version of the checks, see `EDITION`. Rows of earlier versions have none. */
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

/** All kinds of rows in the overview's range, distinguished by their keys. */
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

/** Totals of all vaults' results. */
export const TotalsRecord = z.object({
  /**
   * New with each write. The row after the marks of changed vaults has the same value, which proves that a range read belongs
   * to one write.
   */
  sequence: z.string(),
  /** Compressed; see result-totals.ts. Absent if too large or not complete yet. Then the vaults' rows are read. */
  totals: z.instanceof(Uint8Array).optional(),
});
export type TotalsRecord = z.infer<typeof TotalsRecord>;
export const TotalsRows = entity(TABLE, TotalsRecord);
export const TotalsEnd = entity(TABLE, TotalsRecord.pick({ sequence: true }));

/** Marks a vault whose results differ from what the totals count; see changed-results.ts. */
export const ChangedResults = z.object({
  /** The state in the totals and the current state, packed. Empty if the totals don't count the vault, or if it was removed. */
  before: z.instanceof(Uint8Array).optional(),
  now: z.instanceof(Uint8Array).optional(),
  /** True if the state in the totals is unknown. Then all vaults' rows are read. */
  unknown: z.boolean().optional(),
});
export type ChangedResults = z.infer<typeof ChangedResults>;
export const ChangedRows = entity(TABLE, ChangedResults);

/** All kinds of rows in the range of totals, distinguished by their keys. */
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
    /** Scores by framework. Rows of earlier versions have neither these nor an edition. */
    frameworks: z.record(z.string(), DayTotals).optional(),
    edition: z.int().optional(),
  }),
);

/** The queue of compliance. Handlers tolerate duplicate deliveries. */
export const QUEUE = "compliance-evaluate";
export const EvaluateMessage = z.discriminatedUnion("kind", [
  /** Sends one message for each vault. */
  z.object({ kind: z.literal("everything"), evaluationId: z.string().optional() }),
  /** Evaluates a whole vault. */
  z.object({ kind: z.literal("vault"), vault: z.string(), evaluationId: z.string().optional() }),
  /** Evaluates some of a vault's assets, as `<type>.<name>`. */
  z.object({
    kind: z.literal("assets"),
    vault: z.string(),
    assets: z.array(z.string()),
    /** True if references to them changed: the vault's references are read again. */
    references: z.boolean().optional(),
  }),
  /** Evaluates the assets of a vault that are due by age. */
  z.object({ kind: z.literal("due"), vault: z.string() }),
  /**
   * Finds assets that passed a threshold because of time or settings. The days are those in force when the message was sent.
   */
  z.object({
    kind: z.literal("crossed"),
    criticalDays: z.int().optional(),
    warningDays: z.int().optional(),
  }),
]);
export type EvaluateMessage = z.infer<typeof EvaluateMessage>;
