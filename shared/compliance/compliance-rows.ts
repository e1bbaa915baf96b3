/**
 * Rows and keys of the table Compliance, and the messages of its queue.
 *
 * Terms: a "pair" is a check together with a resource that it applies to. "Findings" are the failing assets of one check in one
 * vault. "Details" are all assets of a vault with their results. A "chunk" is the part of a list that one row contains. A
 * "fence" is a row that each write of a vault's results replaces if it still has the ETag that the writer read, so that a slower
 * writer fails.
 */
import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { bytesMember, entity } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { packedMember } from "../platform/storage/packed-members.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import type { Check } from "./check.ts";
import { severityRank } from "./checks/all.ts";

export const TABLE = "Compliance";
/** The partition of all results, so that the rows of a vault can change in one transaction. */
export const STATE = "state";

/**
 * Prefixes of row keys in the partition `STATE`, in their order. Rows that most responses need are adjacent and are read as one
 * range:
 * - `0!` violations found for the first time
 * - `1!` findings
 * - `2!` exemptions of one asset
 * - `3!` exemptions of a vault, a subscription or everything
 * - `4!` rows that exist once: the last evaluation, the thresholds, the totals; and the totals' marks
 * - `5!` each vault's own row
 * - `6!` details, and the fence of each vault
 */
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
/** Exemptions of more than one asset, and the last evaluation (`EVALUATION_KEY`), but not the next row, `THRESHOLDS_KEY`. */
export const broadExemptionsAndEvaluationRange = { partitionKey: STATE, from: EXEMPTION, before: "4!l" };
export const isVaultKey = (rowKey: string): boolean => rowKey.startsWith(VAULT);
export const isExemptionKey = (rowKey: string): boolean => rowKey.startsWith(EXEMPTION);

/** Keys of rows that exist once. `4!lines` has the expiry thresholds of the last evaluation (`ThresholdsRecord`). */
export const EVALUATION_KEY = "4!evaluation";
export const THRESHOLDS_KEY = "4!lines";
/**
 * Keys of the totals of all vaults' results (see result-totals.ts). Between these two rows are the marks: one row for each
 * vault whose results changed after the totals were computed.
 */
export const TOTALS_KEY = "4!totals";
export const TOTALS_END_KEY = "4!totals~";
const CHANGED_VAULT = "4!totals!";
export const changedVaultKey = (vaultName: string): string => `${CHANGED_VAULT}${vaultName.toLowerCase()}`;
export const isChangedVaultKey = (rowKey: string): boolean => rowKey.startsWith(CHANGED_VAULT);
export const vaultOfChangedKey = (rowKey: string): string => rowKey.slice(CHANGED_VAULT.length);
export const changedVaultsRange = { partitionKey: STATE, from: CHANGED_VAULT, before: TOTALS_END_KEY };
/** Exemptions of more than one asset, the last evaluation, the totals and the marks. */
export const totalsRange = { partitionKey: STATE, from: EXEMPTION, before: `${TOTALS_END_KEY}!` };

/** Key of a vault's own row. Keys that continue after the name use `!`, which sorts before every character of a name. */
export const vaultStateKey = (vaultName: string): string => `${VAULT}${vaultName.toLowerCase()}`;
const chunkText = (index: number): string => String(index).padStart(5, "0");
export const detailsPrefix = (vaultName: string): string => `${DETAILS}${vaultName.toLowerCase()}!`;
/** Key of a vault's fence. It sorts before the keys of the vault's details, so that one request reads both. */
export const fenceKey = (vaultName: string): string => `${detailsPrefix(vaultName)}${FENCE}`;
/** Returns the vault of a fence's row key. Undefined for a row of details. */
export const vaultOfFence = (rowKey: string): string | undefined =>
  rowKey.endsWith(`!${FENCE}`) ? rowKey.slice(DETAILS.length, -FENCE.length - 1) : undefined;
export const detailsRange = { partitionKey: STATE, from: DETAILS, before: keyEnd(DETAILS) };
export const detailsKey = (vaultName: string, chunk: number): string =>
  `${detailsPrefix(vaultName)}${chunkText(chunk)}`;
export const findingsPrefix = (check: Check, vaultName: string): string =>
  `${FINDINGS}${severityRank(check)}!${check.id}!${vaultName.toLowerCase()}!`;
export const findingsKey = (check: Check, vaultName: string, chunk: number): string =>
  `${findingsPrefix(check, vaultName)}${chunkText(chunk)}`;
export const exemptionKey = (id: string, isOfAsset: boolean): string =>
  `${isOfAsset ? ASSET_EXEMPTION : EXEMPTION}${id}`;

/**
 * Returns the key of a row of new violations. Keys sort by the time of the evaluation (ISO 8601).
 *
 * @param attemptId - Different for each attempt of an evaluation. A second attempt finds fewer new violations and must not
 * overwrite those of the first.
 */
export const newViolationsKey = (evaluatedAt: string, vaultName: string, attemptId: string, chunk: number): string =>
  `${NEW_VIOLATIONS}${evaluatedAt}!${vaultName.toLowerCase()}!${attemptId}!${chunkText(chunk)}`;
/** Returns a key that sorts before all rows of violations found at this time (ISO 8601) or later. */
export const newViolationsFrom = (instant: string): string => `${NEW_VIOLATIONS}${instant}`;
export const newViolationsRange = { partitionKey: STATE, from: NEW_VIOLATIONS, before: FINDINGS };

/** A failed result: the check's code, since when it fails (Unix seconds), and the evidence. */
export const Failure = z.object({ code: z.int(), since: z.int(), evidence: z.string() });
export type Failure = z.infer<typeof Failure>;

/** Bytes of one check's tally: its code, and the numbers of passes and failures, with 32 bits each. */
const TALLY_BYTES = 12;

/**
 * A vault's own row, with the data that scores and lists need. It is written with the vault's results or an exemption, never as
 * a counter that several vaults share.
 */
export const VaultState = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  /** For each check, how many of the vault and its assets pass and fail it. Packed; see packed-results.ts. */
  tallies: bytesMember(({ length }) => length % TALLY_BYTES === 0),
  /** Checks that the vault itself fails, in the order of the checks. */
  failures: z.array(Failure),
  /** Exemptions of single assets (`<type>.<name>`) in the vault. `failing`: whether the asset currently fails the check. */
  exemptions: z.array(
    z.object({ id: z.string(), checkId: z.string(), asset: z.string(), until: z.string(), failing: z.boolean() }),
  ),
  /** Owner according to the vault's own tag. */
  owners: z.array(z.string()).optional(),
  /** Whether asset checks were evaluated as for a vault with role-based access control. */
  rbac: z.boolean(),
  /** Known references to the vault and its assets, packed; see references.ts. */
  references: z.instanceof(Uint8Array).optional(),
  /** Unix seconds at which the next result of an asset changes with its age. */
  dueAt: z.int().optional(),
  /**
   * Hashes of the vault's details rows. If they differ from the rows, a process crashed between the writes of those and this
   * row.
   */
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

/** Further data of each item of the row; see finding-facts.ts. Rows of earlier versions have none. */
const factsColumn = { facts: z.instanceof(Uint8Array).optional() };

/**
 * A vault's assets with their results. The next evaluation compares its results with them. Compressed JSON; see
 * packed-results.ts.
 */
export const Details = entity(TABLE, z.object({ assets: z.instanceof(Uint8Array), ...factsColumn }));

export const ResultFences = fenceEntity(TABLE);

/** All kinds of rows in a vault's details range, distinguished by their keys. */
export const DetailsRangeRows = entity(
  TABLE,
  z.object({ ...ResultFences.schema.shape, ...Details.schema.shape }).partial(),
);

/** Failing assets of one check in one vault, by name, for lists of violations. Compressed JSON. */
export const Findings = entity(TABLE, z.object({ items: z.instanceof(Uint8Array), ...factsColumn }));

/** New violations: the check's code, the resource's name, since when it fails (Unix seconds), and the resource's tags. */
export const NewViolationItems = z.array(z.tuple([z.int(), z.string(), z.int(), z.record(z.string(), z.string())]));
export type NewViolationItem = z.infer<typeof NewViolationItems>[number];

/** Resolved violations: the check's code, the resource's name, and since when it failed (Unix seconds). */
export const ResolvedViolationItems = z.array(z.tuple([z.int(), z.string(), z.int()]));
export type ResolvedViolationItem = z.infer<typeof ResolvedViolationItems>[number];

/**
 * Violations that one evaluation of one vault found for the first time, for alerts and audit streams, and those that it found
 * resolved, for audit streams. A row has either. Compressed JSON.
 */
export const NewViolationRows = entity(
  TABLE,
  z.object({
    name: z.string(),
    /** Resource ID of the vault. Empty in a row of resolved violations. */
    vaultId: z.string(),
    subscriptionId: z.string(),
    items: packedMember(NewViolationItems),
    /** Absent in rows of new violations. */
    resolved: packedMember(ResolvedViolationItems).optional(),
  }),
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
  /** Number of vaults, once a message was sent for each. */
  vaults: z.int().optional(),
  /** Vaults whose evaluation failed five times. */
  failedVaults: z.array(z.string()),
});
export type EvaluationRecord = z.infer<typeof EvaluationRecord>;
export const Evaluations = entity(TABLE, EvaluationRecord);

/** The time and policy at which assets that had passed a threshold were last sent for evaluation. */
export const ThresholdsRecord = z.object({
  at: z.string(),
  criticalDays: z.int(),
  warningDays: z.int(),
  /** True if evaluation was turned off since then. Everything must be evaluated after it is turned on. */
  paused: z.boolean(),
  /** Version of the checks, see `EDITION`. Rows of earlier versions have none. */
  edition: z.string().optional(),
});
export type ThresholdsRecord = z.infer<typeof ThresholdsRecord>;
export const ThresholdsRows = entity(TABLE, ThresholdsRecord);

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
export const overviewColumns = [
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
   * A new value for each write of the totals. The row after the marks gets the same value. If both rows of a range query have
   * it, the totals were not replaced during the query.
   */
  sequence: z.string(),
  /** Compressed; see result-totals.ts. Absent if too large or not computed yet. Then readers read all vaults' rows. */
  totals: z.instanceof(Uint8Array).optional(),
});
export type TotalsRecord = z.infer<typeof TotalsRecord>;
export const TotalsRows = entity(TABLE, TotalsRecord);
export const TotalsEnd = entity(TABLE, TotalsRecord.pick({ sequence: true }));

/** The mark of a vault whose results changed after the totals were computed; see changed-results.ts. */
export const ChangedResults = z.object({
  /**
   * Packed results of the vault: `before` as the totals count them, and `now`. Empty if the totals don't count the vault, or if
   * it was removed.
   */
  before: z.instanceof(Uint8Array).optional(),
  now: z.instanceof(Uint8Array).optional(),
  /** True if the results that the totals count are unknown. Then readers read all vaults' rows. */
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

/** Partition of daily scores. A day's row has the last score recorded on that day. */
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

/** The queue of evaluations. Handlers tolerate duplicate deliveries. */
export const QUEUE = "compliance-evaluate";
export const EvaluateMessage = z.discriminatedUnion("kind", [
  /** Sends one message of kind `vault` for each vault. */
  z.object({ kind: z.literal("everything"), evaluationId: z.string().optional() }),
  /** Evaluates a whole vault. */
  z.object({ kind: z.literal("vault"), vault: z.string(), evaluationId: z.string().optional() }),
  /** Evaluates some of a vault's assets, as `<type>.<name>`. */
  z.object({
    kind: z.literal("assets"),
    vault: z.string(),
    assets: z.array(z.string()),
    /** True if references to these assets changed. Then the vault's references are read again. */
    references: z.boolean().optional(),
  }),
  /** Evaluates the assets of a vault whose results change with their age. */
  z.object({ kind: z.literal("due"), vault: z.string() }),
  /**
   * Finds assets that passed an expiry threshold, and sends messages to evaluate them. The days are the policy at the time of
   * sending.
   */
  z.object({
    kind: z.literal("crossed"),
    criticalDays: z.int().optional(),
    warningDays: z.int().optional(),
  }),
]);
export type EvaluateMessage = z.infer<typeof EvaluateMessage>;
