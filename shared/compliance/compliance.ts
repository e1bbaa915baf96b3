/**
 * The compliance module. Scans, timers and queue messages evaluate checks on vaults and their assets. Endpoints read the
 * results: the score, violations and frameworks.
 *
 * A vault's results are counted by check: how many resources pass and fail it. "Totals" are the stored sums of these counts
 * over all vaults. A "holder" is an entry of the inventory that takes the place of a vault for credentials outside of key
 * vaults.
 */
import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { readScope } from "../inventory/scope.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { type Breakdown, breakdownOf } from "./breakdown.ts";
import type { EvaluationRecord } from "./compliance-rows.ts";
import { createViolationReading, currentViolations, type ViolationReading } from "./current-violations.ts";
import { createEvaluationWork, type EvaluationWork } from "./evaluation-queue.ts";
import { createEvaluations, type EvaluationStatus, evaluationStatus, hasEnded, queuedStatus } from "./evaluations.ts";
import { createEvaluator, type Evaluator } from "./evaluator.ts";
import { HOLDER_SUBSCRIPTIONS, type IsExcluded, readExcludedVaults } from "./excluded-vaults.ts";
import { createExemptions, type Exemption, type ExemptionStore } from "./exemptions.ts";
import { type FrameworkResult, frameworkResults } from "./frameworks.ts";
import { type DayScore, readHistory, recordDayScore } from "./history.ts";
import { type NewViolation, newViolations, removeOldNewViolations } from "./new-violations.ts";
import { type CountedOverview, countByCheck, type Overview, readCountedOverview, readOverview } from "./overview.ts";
import type { AssetUse, Reference } from "./references.ts";
import { findTotalsFault, renewTotals } from "./renew-totals.ts";
import { computeScore, type Score } from "./score.ts";
import {
  oldestViolationChange,
  type ViolationChange,
  type ViolationPosition,
  violationChanges,
  violationPositionAt,
} from "./violation-changes.ts";
import { type ViolationsByOwner, violationsByOwner } from "./violation-owners.ts";
import { listViolations, type ViolationFilter, type ViolationPage } from "./violations.ts";

/** Up to these numbers, vaults and assets are evaluated while the request waits. */
const MAX_INLINE_VAULTS = 20;
const MAX_INLINE_ASSETS = 2000;
/**
 * Maximum duration of an evaluation within a request. If an evaluation is unfinished after this time, its process has crashed.
 */
const MAX_INLINE_SECONDS = 300;
const MAX_CONCURRENT_READS = 4;

/** The score of all checks, with the last evaluation. */
export interface ScoreResponse extends Score {
  exempted: number;
  /** Time of the newest evaluation of any vault. Null before the first. */
  evaluatedAt: string | null;
  evaluation: EvaluationStatus | null;
  history?: DayScore[];
}

/** An evaluation, with the current score once the evaluation has ended. */
export type EvaluationResult = EvaluationStatus & { score: ScoreResponse | null };

/** Evaluates checks, stores their results, and returns scores, violations and frameworks. */
export interface Compliance
  extends Pick<Evaluator, "prepareChange" | "restore" | "removeOldFences">,
    Pick<EvaluationWork, "handle" | "failed" | "policyChanged" | "referencesChanged"> {
  readonly exemptions: ExemptionStore;
  /**
   * Evaluates all vaults and assets: within the request if the inventory is small, otherwise with one queue message per vault.
   *
   * @throws {Problem} conflict while `enableComplianceScanning` is false.
   */
  evaluate(caller: Caller): Promise<EvaluationResult>;
  /**
   * Returns the progress of a requested evaluation.
   *
   * @throws {Problem} notFound
   */
  evaluation(evaluationId: string): Promise<EvaluationResult>;
  /**
   * Sends a message that evaluates what changed with time, or everything if the checks changed, and removes old data. A daily
   * timer calls this.
   */
  runDue(): Promise<void>;
  /** Stores today's score and that of each framework. Recomputes the totals if results changed. */
  recordScore(): Promise<void>;
  /** Recomputes the stored totals of all results if any changed, or always with `all`. See renew-totals.ts. */
  renewTotals(options?: { all: boolean }): Promise<void>;
  /** Returns how the stored totals are wrong; see renew-totals.ts. */
  findTotalsFault(): Promise<"stale" | "unreadable" | undefined>;
  /**
   * Returns the current score of all checks. Costs one request for the totals if they are exact, otherwise one per 1,000
   * vaults. Also one for the subscriptions in scope, more for credentials that are in no vault, and one for the history.
   *
   * @param historyDays - Number of days whose scores are included. Without it, the response has no `history`.
   */
  score(historyDays?: number): Promise<ScoreResponse>;
  /**
   * Returns the score of all checks and that of each framework, for metrics. One request if the totals are exact, otherwise one
   * per 1,000 vaults.
   *
   * @param isExcluded - Returns whether a vault or holder is excluded from the counts at this time, as in the inventory.
   */
  scoreAndFrameworks(isExcluded: IsExcluded): Promise<{ score: ScoreResponse; frameworks: FrameworkResult[] }>;
  /**
   * Lists violations. Sends one request per 1,000 vaults, one for the scope, one for the times of the vaults' last listings,
   * and usually up to four for the page. A page needs at most 16 requests, or ten times as many to search for an owner, a
   * resource or exempted violations.
   */
  violations(filter: ViolationFilter, request: PageRequest): Promise<ViolationPage>;
  /** For alerts: returns violations that are new since the cursor. Without a cursor, returns none and the current cursor. */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /** For audit streams: the violations that evaluations found opened or resolved, in their order (violation-changes.ts). */
  readonly violationChanges: {
    /** Yields the changes after a position, until ten minutes ago. One request per 100 rows of changes. */
    after(position: ViolationPosition): AsyncGenerator<ViolationChange>;
    /** Returns the time of the oldest change that `after` would yield. Null if there is none. One request. */
    oldest(position: ViolationPosition): Promise<string | null>;
    /** Returns the position before the changes that are found from now on. */
    now(): ViolationPosition;
  };
  /**
   * For alerts: returns a page of current violations, the most severe first, without exempted ones. No cursor after the last
   * page.
   */
  currentViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor?: string }>;
  /** For alerts: reads the data that shows whether notified violations still exist. One request per 1,000 vaults. */
  readViolations(): Promise<ViolationReading>;
  /**
   * Returns the failing checks and the score of each subscription. Costs as much as `score`, and one request for the names of
   * subscriptions.
   */
  breakdown(): Promise<Breakdown>;
  /** Counts open violations by owner. See `violationsByOwner`. Costs as much as `violations` with an owner. */
  violationsByOwner(): Promise<ViolationsByOwner>;
  /** Lists frameworks by ID. */
  frameworks(request: PageRequest): Promise<Page<FrameworkResult>>;
  /**
   * Returns a framework's results.
   *
   * @param historyDays - Number of days whose scores are included.
   * @throws {Problem} notFound
   */
  framework(id: string, historyDays?: number): Promise<FrameworkResult & { history?: DayScore[] }>;
  /**
   * Returns a framework's results with the first violations of each check, for an assessor.
   *
   * @param options - `days`: length of the trend. `violationsPerCheck`: maximum number of violations of each check.
   * @throws {Problem} notFound
   */
  assessment(id: string, options: { days: number; violationsPerCheck: number }): Promise<Assessment>;
}

/** A framework's results with their evidence. */
export interface Assessment {
  framework: FrameworkResult & { history: DayScore[] };
  /** The first violations of each check that fails or has exempted violations, by the check's ID. */
  violations: Map<string, ViolationPage>;
  /** The extent of an evaluation: the number of vaults, the number of holders of credentials, and when. */
  scope: {
    vaults: number;
    /** Number of holders (see the top of this file). One directory, such as an Entra tenant, can have several. */
    directories: number;
    subscriptions: string[];
    /** Times of the oldest and the newest evaluation of a vault or holder, ISO 8601. Null if there is none. */
    evaluatedFrom: string | null;
    evaluatedTo: string | null;
  };
  /** Active exemptions of the framework's checks. */
  exemptions: Exemption[];
  createdAt: Date;
}

/** Creates the compliance module: connects the evaluation of checks, the results and the exemptions. */
export function createCompliance(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  /** Returns whether a PRO license is present. Without a license, credentials outside of key vaults don't count. */
  licensed: () => Promise<boolean>;
  /** Returns the known references to a vault and its assets. */
  references?: (vaultName: string) => Promise<(Reference | AssetUse)[]>;
  /** Name of the tag whose value is a resource's owner. */
  ownerTag?: string;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Compliance {
  const { tables, settings, audit, clock, randomness } = deps;
  const evaluator = createEvaluator(deps);
  const evaluations = createEvaluations(deps);
  /**
   * Reads the results of each counted vault and holder, for lists of violations. Vaults of subscriptions that left the scope
   * don't count. Holders don't count without a license, or if not seen for days; their rows are read only if there are any.
   */
  const readCurrentOverview = async () => {
    const countingContext = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readOverview(tables, countingContext.now, (hasHolders) =>
      readExcludedVaults(tables, countingContext, hasHolders),
    );
  };
  const work = createEvaluationWork({ ...deps, evaluator, evaluations, overview: readCurrentOverview });
  /**
   * Reads how many results pass and fail each check, which is enough for scores. Cheaper, because it uses the stored totals.
   */
  const readCurrentCounts = async () => {
    const countingContext = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readCountedOverview(tables, countingContext.now, (hasHolders) =>
      readExcludedVaults(tables, countingContext, hasHolders),
    );
  };

  async function evaluate(caller: Caller): Promise<EvaluationResult> {
    if (!(await evaluator.readContext())) {
      throw new Problem(
        "conflict",
        "Compliance evaluation is switched off. Set enableComplianceScanning to true first.",
      );
    }
    const now = clock.now();
    const evaluationId = randomness.ulid(now);
    const { vaults, assets } = await work.readInventory();
    const inline = vaults.length <= MAX_INLINE_VAULTS && assets <= MAX_INLINE_ASSETS;
    const record: EvaluationRecord = {
      evaluationId,
      requestedAt: now.toISOString(),
      requestedBy: caller.actor,
      ...(inline ? { vaults: vaults.length } : {}),
      failedVaults: [],
    };
    const event = {
      type: "compliance.evaluationRequested",
      caller,
      target: { type: "evaluation", id: evaluationId },
      details: { vaults: vaults.length, assets },
    };
    await audited(audit, event, async () => {
      await evaluations.store(record);
      // An inline evaluation sends the message too, delayed, so that it completes the evaluation if this process crashes.
      await work.send({ kind: "everything", evaluationId }, inline ? MAX_INLINE_SECONDS : 0);
    });
    if (!inline) return { ...queuedStatus(record), score: null };
    for (const vault of await work.namesOfAllVaults(vaults)) await work.handle({ kind: "vault", vault, evaluationId });
    await recordScore();
    return await evaluation(evaluationId);
  }

  async function evaluation(evaluationId: string): Promise<EvaluationResult> {
    const overview = await readCurrentOverview();
    const status = await evaluations.status(evaluationId, overview);
    if (!status) throw notFound(`The evaluation ${evaluationId.slice(0, 64)}`);
    return { ...status, score: hasEnded(status) ? scoreResponse(overview) : null };
  }

  async function recordScore(): Promise<void> {
    const [renewal] = await Promise.allSettled([renewTotals(tables, { changed: true })]);
    const overview = await readCurrentCounts();
    await recordDayScore(tables, clock.now(), scoreResponse(overview), frameworkResults(overview));
    // The stored score is correct without the totals. The error is thrown afterwards, so that it is logged.
    if (renewal.status === "rejected") throw renewal.reason;
  }

  const exemptions = createExemptions({ tables, audit, clock, randomness });

  return {
    prepareChange: evaluator.prepareChange,
    restore: evaluator.restore,
    removeOldFences: evaluator.removeOldFences,
    handle: work.handle,
    failed: work.failed,
    policyChanged: work.policyChanged,
    referencesChanged: work.referencesChanged,
    evaluate,
    evaluation,
    exemptions,
    recordScore,
    renewTotals: (options) => renewTotals(tables, { changed: options?.all !== true }),
    findTotalsFault: () => findTotalsFault(tables),

    async runDue() {
      // `crossed`: evaluates the assets that crossed an expiry threshold since the last such message, or all after an update of
      // the checks.
      await work.send({ kind: "crossed" });
      const now = clock.now();
      await removeOldNewViolations(tables, now);
      const { scanRetentionDays } = await settings.values();
      await evaluations.removeOlderThan(new Date(now.getTime() - scanRetentionDays * DAY_MS));
    },

    async score(historyDays) {
      const score = scoreResponse(await readCurrentCounts());
      if (historyDays === undefined) return score;
      return { ...score, history: await readHistory(tables, historyDays, clock.now(), score) };
    },

    async scoreAndFrameworks(isExcluded) {
      const overview = await readCountedOverview(tables, clock.now().getTime(), async () => isExcluded);
      return { score: scoreResponse(overview), frameworks: frameworkResults(overview) };
    },

    violations: async (filter, request) => await listViolations(tables, await readCurrentOverview(), filter, request),

    violationChanges: {
      after: (position) => violationChanges(tables, position, clock.now()),
      oldest: (position) => oldestViolationChange(tables, position, clock.now()),
      now: () => violationPositionAt(clock.now()),
    },

    currentViolations: async (cursor, limit) =>
      await currentViolations(tables, await readCurrentOverview(), cursor, limit),

    readViolations: async () => createViolationReading(tables, await readCurrentOverview()),

    newViolations: (cursor, limit) => newViolations(tables, readCurrentOverview, clock.now(), cursor, limit),

    async breakdown() {
      const [overview, scope] = await Promise.all([readCurrentCounts(), readScope(tables)]);
      return breakdownOf(overview, scope);
    },

    violationsByOwner: async () => await violationsByOwner(tables, await readCurrentOverview()),

    async frameworks(request) {
      return pageOfAll(frameworkResults(await readCurrentCounts()), request, ({ id }) => id);
    },

    async framework(id, historyDays) {
      const framework = frameworkOf(await readCurrentCounts(), id);
      if (historyDays === undefined) return framework;
      return { ...framework, history: await readHistory(tables, historyDays, clock.now(), framework, framework.id) };
    },

    async assessment(id, { days, violationsPerCheck }) {
      const createdAt = clock.now();
      const overview = await readCurrentOverview();
      const framework = frameworkOf(overview, id);
      const history = await readHistory(tables, days, createdAt, framework, framework.id);
      const checks = new Map(framework.controls.flatMap(({ checks }) => checks.map((check) => [check.id, check])));
      const failing = [...checks.values()].filter(({ failed, exempted }) => failed + exempted > 0);
      const violations = await pMap(
        failing,
        async ({ id: check }) =>
          [check, await listViolations(tables, overview, { check }, firstPage(violationsPerCheck))] as const,
        { concurrency: MAX_CONCURRENT_READS },
      );
      const activeExemptions = (await exemptions.all()).filter(({ active, checkId }) => active && checks.has(checkId));
      return {
        framework: { ...framework, history },
        violations: new Map(violations),
        scope: scopeOf(overview),
        exemptions: activeExemptions,
        createdAt,
      };
    },
  };
}

const firstPage = (limit: number): PageRequest => ({ limit, offset: 0, cursor: undefined });

/** Returns the results of a framework. @throws {Problem} notFound */
function frameworkOf(overview: CountedOverview, id: string): FrameworkResult {
  const framework = frameworkResults(overview).find((result) => result.id === id.toLowerCase());
  if (!framework) throw notFound(`The framework ${id.slice(0, 64)}`);
  return framework;
}

function scopeOf({ vaults }: Overview): Assessment["scope"] {
  const evaluated = vaults.map(({ evaluatedAt }) => evaluatedAt).sort();
  const keyVaults = vaults.filter(({ subscriptionId }) => !HOLDER_SUBSCRIPTIONS.includes(subscriptionId));
  return {
    vaults: keyVaults.length,
    directories: vaults.length - keyVaults.length,
    subscriptions: [...new Set(keyVaults.map(({ subscriptionId }) => subscriptionId))].sort(),
    evaluatedFrom: evaluated[0] ?? null,
    evaluatedTo: evaluated.at(-1) ?? null,
  };
}

function scoreResponse(overview: CountedOverview): ScoreResponse {
  const counts = countByCheck(overview);
  const { evaluation, evaluatedAt, vaultsLeft } = overview;
  return {
    ...computeScore(counts),
    exempted: [...counts.values()].reduce((sum, { exempted }) => sum + exempted, 0),
    evaluatedAt,
    evaluation: evaluation ? evaluationStatus(evaluation, vaultsLeft) : null,
  };
}
