import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import {
  type Mark,
  SyncFailure,
  type SyncTarget,
  type TargetDependencies,
} from "../../../shared/sync/providers/provider.ts";
import type { AnyProvider } from "../../../shared/sync/providers/providers.ts";

/** Kinds of trouble that a simulated provider can cause. */
export type Trouble =
  /** Too many requests. */
  | "throttled"
  /** The provider rejects the credentials. */
  | "badCredentials"
  /** The credentials are valid but lack the permission. */
  | "denied"
  /** The response is an HTML page of a proxy, with status 200. */
  | "html"
  /** The connection ends before the request is applied. */
  | "lostBefore"
  /** The response has the status 101 (switching protocols), and then nothing. */
  | "switched"
  /** The next write is applied, then the connection ends without a response. */
  | "lostAfterWrite";

/** A provider and its simulation, as the shared tests of all providers use them. */
export interface Harness {
  provider: AnyProvider;
  service: string;
  region: string | undefined;
  settings: Record<string, unknown>;
  secrets: Record<string, unknown>;
  /** Secrets of the same form that the provider rejects. Undefined if the provider has no secrets. */
  wrongSecrets?: Record<string, unknown>;
  deps: TargetDependencies;
  /** Returns an unused name for a target. */
  unusedName(): string;
  /** Names that the provider does not allow. */
  invalidNames: string[];
  /** Whether a deleted target can be recovered. */
  recovers: boolean;
  /** Whether a write fails if the target was changed after it was described. */
  conditional: boolean;
  /** Whether the provider's calls go through `deps.outgoing`. Calls of an SDK do not; they have their own time limits. */
  guarded: boolean;
  /** Returns the current value; undefined if there is none. */
  value(name: string): string | undefined;
  /** Another writer creates the target, or a new version of it, without a mark. */
  writeByOthers(name: string, value: string): void | Promise<void>;
  /** Another writer deletes the target in the usual way. */
  deleteByOthers(name: string): void | Promise<void>;
  /** Causes a trouble for the next `times` requests, or until `removeFaults` is called. */
  addTrouble(kind: Trouble, times?: number): void;
  removeFaults(): void;
  /** Number of requests so far that write a value, and of those that return one. */
  counts(): { writes: number; valueReads: number };
}

const FIRST_VALUE = "planted-value-of-the-first-version";
const SECOND_VALUE = "planted-value-of-the-second-version";
const mark = (sourceVersion = "a".repeat(32), recordId = "01JD0000000000000000000001"): Mark => ({
  recordId,
  sourceVersion,
  source: "kv-payments/db-password",
});
/**
 * Marks of the first and the second version. If the provider stores marks, a target has the mark beside its value. `describe`
 * then returns the mark's record as `ownedBy`, and its `markId` as `currentMarkId` until another writer changes the value.
 */
const FIRST_MARK = mark();
const SECOND_MARK = mark("b".repeat(32));

/** Tests that every provider must pass. */
export function providerSuite(title: string, make: () => Promise<Harness & { stop(): Promise<void> }>): void {
  describe(title, () => {
    let harness: Awaited<ReturnType<typeof make>>;
    let target: SyncTarget;
    let name: string;
    /** Whether the provider can store marks. Without them, the service can't recognize its own version. */
    let storesMarks: boolean;

    beforeAll(async () => {
      harness = await make();
      storesMarks = harness.provider.services[harness.service]!.storesMark;
    });
    afterAll(() => harness?.stop());
    beforeEach(() => {
      harness.removeFaults();
      target = open();
      name = harness.unusedName();
    });

    const open = (secrets = harness.secrets) => {
      const { provider, service, region, settings, deps } = harness;
      return provider.open({ service, region }, settings, secrets, deps);
    };
    /** Describes the target and then writes it, as a run does. */
    const put = async (value: string, valueMark: Mark) =>
      target.put(name, value, valueMark, await target.describe(name));
    const countWrites = async (work: () => Promise<unknown>) => {
      const before = harness.counts().writes;
      await work();
      return harness.counts().writes - before;
    };
    /** Returns the failure of some work. Checks that it contains no secret and has a message and a remedy. */
    async function failureOf(work: Promise<unknown>): Promise<SyncFailure> {
      const error = await work.then(
        () => new Error("It succeeded."),
        (reason: unknown) => reason,
      );
      if (!(error instanceof SyncFailure)) throw error;
      const errorText = `${error.stack} ${JSON.stringify({ ...error })} ${error.remedy} ${String(error.cause)}`;
      for (const secret of [FIRST_VALUE, SECOND_VALUE, ...Object.values(harness.secrets)])
        expect(errorText).not.toContain(secret);
      expect([error.message, error.remedy].map((text) => text.length > 10)).toEqual([true, true]);
      return error;
    }
    /** Returns the failure of some work during a trouble. */
    async function failureDuring(kind: Trouble, work: () => Promise<unknown>): Promise<SyncFailure> {
      harness.addTrouble(kind);
      try {
        return await failureOf(work());
      } finally {
        harness.removeFaults();
      }
    }

    test("a missing target is created with its mark", async () => {
      expect(await target.describe(name)).toMatchObject({ exists: false });
      expect(await put(FIRST_VALUE, FIRST_MARK)).toMatchObject({ created: true });
      expect(harness.value(name)).toBe(FIRST_VALUE);
      const owned = { ownedBy: FIRST_MARK.recordId, currentMarkId: markId(FIRST_MARK) };
      expect(await target.describe(name)).toMatchObject({ exists: true, ...(storesMarks && owned) });
    });

    test("a second write with the same mark writes nothing, if the provider stores marks", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      expect(await countWrites(() => put(FIRST_VALUE, FIRST_MARK))).toBe(storesMarks ? 0 : 1);
      expect(harness.value(name)).toBe(FIRST_VALUE);
    });

    test("a second write with an outdated description writes nothing, if the provider stores marks", async () => {
      const before = await target.describe(name);
      await target.put(name, FIRST_VALUE, FIRST_MARK, before);
      const again = target.put(name, FIRST_VALUE, FIRST_MARK, before);
      const written = await countWrites(() => again.catch(() => undefined));
      expect(written).toBeLessThanOrEqual(storesMarks ? 0 : 1);
      expect(harness.value(name)).toBe(FIRST_VALUE);
    });

    test("a new version replaces the old one", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      expect(await put(SECOND_VALUE, SECOND_MARK)).toMatchObject({ created: false });
      expect(harness.value(name)).toBe(SECOND_VALUE);
      if (storesMarks) expect(await target.describe(name)).toMatchObject({ currentMarkId: markId(SECOND_MARK) });
    });

    test("a version of another writer is detected without reading a value, and replaced", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      await harness.writeByOthers(name, "by-others");
      const { valueReads } = harness.counts();
      const found = await target.describe(name);
      expect(harness.counts().valueReads).toBe(valueReads);
      expect(found.exists).toBe(true);
      if (storesMarks)
        expect([found.currentMarkId !== markId(FIRST_MARK), found.ownedBy]).toEqual([true, FIRST_MARK.recordId]);
      const restored = storesMarks ? await target.restoreVersion?.(name, FIRST_MARK, found) : undefined;
      if (restored === undefined) await target.put(name, FIRST_VALUE, FIRST_MARK, found);
      expect(harness.value(name)).toBe(FIRST_VALUE);
      if (storesMarks) expect(await target.describe(name)).toMatchObject({ currentMarkId: markId(FIRST_MARK) });
    });

    test("a target of another owner is recognized, if the provider stores marks", async () => {
      await harness.writeByOthers(name, "by-others");
      const found = await target.describe(name);
      // `ownedBy` is null if the provider stores marks but the target has none.
      expect([found.exists, found.ownedBy, found.currentMarkId]).toEqual([
        true,
        storesMarks ? null : undefined,
        undefined,
      ]);
    });

    test("a target of another record shows that record, if the provider stores marks", async () => {
      await put(FIRST_VALUE, mark(FIRST_MARK.sourceVersion, "01JD0000000000000000000002"));
      if (storesMarks) expect(await target.describe(name)).toMatchObject({ ownedBy: "01JD0000000000000000000002" });
    });

    test("a target of another owner can be adopted", async () => {
      await harness.writeByOthers(name, "by-others");
      await target.adopt?.(name, FIRST_MARK);
      if (storesMarks && target.adopt) {
        expect(await target.describe(name)).toMatchObject({ ownedBy: FIRST_MARK.recordId });
        expect(harness.value(name)).toBe("by-others");
      }
      await put(FIRST_VALUE, FIRST_MARK);
      expect(harness.value(name)).toBe(FIRST_VALUE);
      if (storesMarks)
        expect(await target.describe(name)).toMatchObject({
          ownedBy: FIRST_MARK.recordId,
          currentMarkId: markId(FIRST_MARK),
        });
    });

    test("a target that changed after it was described is not overwritten, if the provider supports conditions", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      const seen = await target.describe(name);
      await harness.writeByOthers(name, "by-others");
      const writing = target.put(name, SECOND_VALUE, SECOND_MARK, seen);
      if (!harness.conditional) return void (await writing);
      expect((await failureOf(writing)).code).toBe("changedMeanwhile");
      expect(harness.value(name)).toBe("by-others");
    });

    test("a deleted target is recovered, if the provider supports that", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      await harness.deleteByOthers(name);
      const found = await target.describe(name);
      expect(found.exists).toBe(false);
      expect(found.deletedUntil !== undefined).toBe(harness.recovers);
      if (!harness.recovers) return;
      expect(found.ownedBy).toBe(FIRST_MARK.recordId);
      expect((await failureOf(target.put(name, SECOND_VALUE, SECOND_MARK, found))).code).toBe("targetDeleted");
      await target.undelete!(name);
      await put(SECOND_VALUE, SECOND_MARK);
      expect(harness.value(name)).toBe(SECOND_VALUE);
    });

    test("a target is removed recoverably, and removing it again does nothing", async () => {
      await put(FIRST_VALUE, FIRST_MARK);
      await target.remove(name);
      expect(harness.value(name)).toBeUndefined();
      expect((await target.describe(name)).deletedUntil !== undefined).toBe(harness.recovers);
      await target.remove(name);
    });

    test("the names and the maximum size that the provider allows are accepted", async () => {
      const { nameProblem, maxBytes } = harness.provider.services[harness.service]!;
      expect(nameProblem(name)).toBeUndefined();
      for (const bad of harness.invalidNames) expect([bad, typeof nameProblem(bad)]).toEqual([bad, "string"]);
      await put("x".repeat(maxBytes), FIRST_MARK);
      expect(harness.value(name)).toHaveLength(maxBytes);
    });

    test("a throttling provider causes the failure throttled", async () => {
      expect((await failureDuring("throttled", () => target.describe(name))).code).toBe("throttled");
      const seen = await target.describe(name);
      expect((await failureDuring("throttled", () => target.put(name, FIRST_VALUE, FIRST_MARK, seen))).code).toBe(
        "throttled",
      );
      expect(harness.value(name)).toBeUndefined();
    });

    test("wrong credentials cause the failure badCredentials", async () => {
      expect((await failureDuring("badCredentials", () => target.describe(name))).code).toBe("badCredentials");
      if (!harness.wrongSecrets) return;
      const wrong = open(harness.wrongSecrets);
      expect((await failureOf(wrong.describe(name))).code).toBe("badCredentials");
      const { provider, settings, wrongSecrets, deps } = harness;
      expect((await failureOf(provider.check(settings, wrongSecrets, deps))).code).toBe("badCredentials");
    });

    test("the check of good credentials changes nothing", async () => {
      const { provider, settings, secrets, deps } = harness;
      expect(await countWrites(() => provider.check(settings, secrets, deps))).toBe(0);
    });

    test("a missing permission causes the failure accessDenied", async () => {
      expect((await failureDuring("denied", () => target.describe(name))).code).toBe("accessDenied");
    });

    test("an HTML page is not accepted as a response", async () => {
      const { code, unclear } = await failureDuring("html", () => target.describe(name));
      expect([code, unclear]).toEqual([expect.stringMatching(/^(badResponse|unreachable)$/), true]);
    });

    test("a response with status 101 ends the call without a write", { timeout: 60_000 }, async () => {
      if (!harness.guarded) return;
      const seen = await target.describe(name);
      const failure = await failureDuring("switched", () => target.put(name, FIRST_VALUE, FIRST_MARK, seen));
      expect([failure.code, harness.value(name)]).toEqual(["unreachable", undefined]);
    });

    test("a connection that ends before the request is applied causes no write", async () => {
      const seen = await target.describe(name);
      const failure = await failureDuring("lostBefore", () => target.put(name, FIRST_VALUE, FIRST_MARK, seen));
      expect([failure.code, harness.value(name)]).toEqual(["unreachable", undefined]);
      await put(FIRST_VALUE, FIRST_MARK);
      expect(harness.value(name)).toBe(FIRST_VALUE);
    });

    test("a response that is lost after the write makes the outcome unclear", async () => {
      const seen = await target.describe(name);
      harness.addTrouble("lostAfterWrite", 1);
      const first = await target.put(name, FIRST_VALUE, FIRST_MARK, seen).catch((error: unknown) => error);
      if (first instanceof SyncFailure) expect(first.unclear).toBe(true);
      harness.removeFaults();
      expect(harness.value(name)).toBe(FIRST_VALUE);
      expect(await countWrites(() => put(FIRST_VALUE, FIRST_MARK))).toBeLessThanOrEqual(storesMarks ? 0 : 1);
      expect(harness.value(name)).toBe(FIRST_VALUE);
    });
  });
}
