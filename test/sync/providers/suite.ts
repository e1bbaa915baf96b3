import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { markId } from "../../../shared/sync/providers/ownership-mark.ts";
import {
  type Mark,
  SyncFailure,
  type SyncTarget,
  type TargetDependencies,
} from "../../../shared/sync/providers/provider.ts";
import type { AnyProvider } from "../../../shared/sync/providers/providers.ts";

/** How a stand-in can be made to misbehave: for the next `times` requests, or until `heal`. */
export type Trouble =
  /** Too many requests. */
  | "throttled"
  /** The credentials are none, or end. */
  | "badCredentials"
  /** They hold, and may not do that. */
  | "denied"
  /** A page of a proxy, with status 200. */
  | "html"
  /** The connection ends before anything is done. */
  | "lostBefore"
  /** 101 to a request that asked for no other protocol, and nothing after it. */
  | "switched"
  /** The next write is done, then the connection ends without an answer. */
  | "lostAfterWrite";

/** Interface to a provider's simulation for its tests. */
export interface Harness {
  provider: AnyProvider;
  service: string;
  region: string | undefined;
  settings: Record<string, unknown>;
  secrets: Record<string, unknown>;
  /** Secrets of the same form that don't hold; undefined where the provider has none of its own. */
  wrongSecrets?: Record<string, unknown>;
  deps: TargetDependencies;
  /** Returns an unused name for a target. */
  freshName(): string;
  /** Names that can't be one. */
  badNames: string[];
  /** Whether a deleted target can be brought back. */
  recovers: boolean;
  /** Whether a target that was changed between the last look and the write is left alone. */
  conditional: boolean;
  /** Whether its calls go through `deps.outgoing`. An SDK's end at a time limit of its own. */
  guarded: boolean;
  /** Returns the current value; undefined if there is none. */
  value(name: string): string | undefined;
  /** Another writer creates the target, or a new version of it, without a mark. */
  writeByOthers(name: string, value: string): void | Promise<void>;
  /** Another writer deletes the target in the usual way. */
  deleteByOthers(name: string): void | Promise<void>;
  trouble(kind: Trouble, times?: number): void;
  heal(): void;
  /** Requests so far that write a value and that give one out. */
  counts(): { writes: number; valueReads: number };
}

const VALUE = "planted-value-of-the-first-version";
const NEXT = "planted-value-of-the-second-version";
const mark = (sourceVersion = "a".repeat(32), recordId = "01JD0000000000000000000001"): Mark => ({
  recordId,
  sourceVersion,
  source: "kv-payments/db-password",
});
const FIRST = mark();
const SECOND = mark("b".repeat(32));

/** Tests that every provider must pass. */
export function providerSuite(title: string, make: () => Promise<Harness & { stop(): Promise<void> }>): void {
  describe(title, () => {
    let harness: Awaited<ReturnType<typeof make>>;
    let target: SyncTarget;
    let name: string;
    let marks: boolean;

    beforeAll(async () => {
      harness = await make();
      marks = harness.provider.services[harness.service]!.marks;
    });
    afterAll(() => harness?.stop());
    beforeEach(() => {
      harness.heal();
      target = open();
      name = harness.freshName();
    });

    const open = (secrets = harness.secrets) => {
      const { provider, service, region, settings, deps } = harness;
      return provider.open({ service, region }, settings, secrets, deps);
    };
    /** As a run does it: looks, then writes. */
    const put = async (value: string, its: Mark) => target.put(name, value, its, await target.describe(name));
    const writesOf = async (work: () => Promise<unknown>) => {
      const before = harness.counts().writes;
      await work();
      return harness.counts().writes - before;
    };
    async function failureOf(work: Promise<unknown>): Promise<SyncFailure> {
      const error = await work.then(
        () => new Error("It succeeded."),
        (reason: unknown) => reason,
      );
      if (!(error instanceof SyncFailure)) throw error;
      const errorText = `${error.stack} ${JSON.stringify({ ...error })} ${error.remedy} ${String(error.cause)}`;
      for (const secret of [VALUE, NEXT, ...Object.values(harness.secrets)]) expect(errorText).not.toContain(secret);
      expect([error.message, error.remedy].map((text) => text.length > 10)).toEqual([true, true]);
      return error;
    }
    /** The trouble for as long as the work takes. */
    async function troubled(kind: Trouble, work: () => Promise<unknown>): Promise<SyncFailure> {
      harness.trouble(kind);
      try {
        return await failureOf(work());
      } finally {
        harness.heal();
      }
    }

    test("creates a missing target, with its mark", async () => {
      expect(await target.describe(name)).toMatchObject({ exists: false });
      expect(await put(VALUE, FIRST)).toMatchObject({ created: true });
      expect(harness.value(name)).toBe(VALUE);
      const owned = { ownedBy: FIRST.recordId, holds: markId(FIRST) };
      expect(await target.describe(name)).toMatchObject({ exists: true, ...(marks && owned) });
    });

    test("a repeat with the same mark writes nothing, where the provider tells", async () => {
      await put(VALUE, FIRST);
      expect(await writesOf(() => put(VALUE, FIRST))).toBe(marks ? 0 : 1);
      expect(harness.value(name)).toBe(VALUE);
    });

    test("a repeat that knows of no earlier one writes nothing, where the provider tells", async () => {
      const before = await target.describe(name);
      await target.put(name, VALUE, FIRST, before);
      const again = target.put(name, VALUE, FIRST, before);
      const written = await writesOf(() => again.catch(() => undefined));
      expect(written).toBeLessThanOrEqual(marks ? 0 : 1);
      expect(harness.value(name)).toBe(VALUE);
    });

    test("a new version is written over the old one", async () => {
      await put(VALUE, FIRST);
      expect(await put(NEXT, SECOND)).toMatchObject({ created: false });
      expect(harness.value(name)).toBe(NEXT);
      if (marks) expect(await target.describe(name)).toMatchObject({ holds: markId(SECOND) });
    });

    test("a version of another writer is detected without reading a value, and replaced", async () => {
      await put(VALUE, FIRST);
      await harness.writeByOthers(name, "by-others");
      const { valueReads } = harness.counts();
      const found = await target.describe(name);
      expect(harness.counts().valueReads).toBe(valueReads);
      expect(found.exists).toBe(true);
      if (marks) expect([found.holds !== markId(FIRST), found.ownedBy]).toEqual([true, FIRST.recordId]);
      const restored = marks ? await target.restoreVersion?.(name, FIRST, found) : undefined;
      if (restored === undefined) await target.put(name, VALUE, FIRST, found);
      expect(harness.value(name)).toBe(VALUE);
      if (marks) expect(await target.describe(name)).toMatchObject({ holds: markId(FIRST) });
    });

    test("a target of another owner is recognized, if the provider stores marks", async () => {
      await harness.writeByOthers(name, "by-others");
      const found = await target.describe(name);
      expect([found.exists, found.ownedBy, found.holds]).toEqual([true, marks ? null : undefined, undefined]);
    });

    test("one of another record names that one, where the provider tells", async () => {
      await put(VALUE, mark(FIRST.sourceVersion, "01JD0000000000000000000002"));
      if (marks) expect(await target.describe(name)).toMatchObject({ ownedBy: "01JD0000000000000000000002" });
    });

    test("one that is not ours can be taken over", async () => {
      await harness.writeByOthers(name, "by-others");
      await target.adopt?.(name, FIRST);
      if (marks && target.adopt) {
        expect(await target.describe(name)).toMatchObject({ ownedBy: FIRST.recordId });
        expect(harness.value(name)).toBe("by-others");
      }
      await put(VALUE, FIRST);
      expect(harness.value(name)).toBe(VALUE);
      if (marks) expect(await target.describe(name)).toMatchObject({ ownedBy: FIRST.recordId, holds: markId(FIRST) });
    });

    test("what changed between the last look and the write is left alone, where the provider can", async () => {
      await put(VALUE, FIRST);
      const seen = await target.describe(name);
      await harness.writeByOthers(name, "by-others");
      const writing = target.put(name, NEXT, SECOND, seen);
      if (!harness.conditional) return void (await writing);
      expect((await failureOf(writing)).code).toBe("changedMeanwhile");
      expect(harness.value(name)).toBe("by-others");
    });

    test("a deleted one is brought back and never removed for good", async () => {
      await put(VALUE, FIRST);
      await harness.deleteByOthers(name);
      const found = await target.describe(name);
      expect(found.exists).toBe(false);
      expect(found.deletedUntil !== undefined).toBe(harness.recovers);
      if (!harness.recovers) return;
      expect(found.ownedBy).toBe(FIRST.recordId);
      expect((await failureOf(target.put(name, NEXT, SECOND, found))).code).toBe("targetDeleted");
      await target.undelete!(name);
      await put(NEXT, SECOND);
      expect(harness.value(name)).toBe(NEXT);
    });

    test("is removed recoverably, and removing it again does nothing", async () => {
      await put(VALUE, FIRST);
      await target.remove(name);
      expect(harness.value(name)).toBeUndefined();
      expect((await target.describe(name)).deletedUntil !== undefined).toBe(harness.recovers);
      await target.remove(name);
    });

    test("takes names as the provider does, and values up to its size", async () => {
      const { nameProblem, maxBytes } = harness.provider.services[harness.service]!;
      expect(nameProblem(name)).toBeUndefined();
      for (const bad of harness.badNames) expect([bad, typeof nameProblem(bad)]).toEqual([bad, "string"]);
      await put("x".repeat(maxBytes), FIRST);
      expect(harness.value(name)).toHaveLength(maxBytes);
    });

    test("a provider that is busy for good is throttled", async () => {
      expect((await troubled("throttled", () => target.describe(name))).code).toBe("throttled");
      const seen = await target.describe(name);
      expect((await troubled("throttled", () => target.put(name, VALUE, FIRST, seen))).code).toBe("throttled");
      expect(harness.value(name)).toBeUndefined();
    });

    test("wrong credentials are named so", async () => {
      expect((await troubled("badCredentials", () => target.describe(name))).code).toBe("badCredentials");
      if (!harness.wrongSecrets) return;
      const wrong = open(harness.wrongSecrets);
      expect((await failureOf(wrong.describe(name))).code).toBe("badCredentials");
      const { provider, settings, wrongSecrets, deps } = harness;
      expect((await failureOf(provider.check(settings, wrongSecrets, deps))).code).toBe("badCredentials");
    });

    test("the check of good credentials changes nothing", async () => {
      const { provider, settings, secrets, deps } = harness;
      expect(await writesOf(() => provider.check(settings, secrets, deps))).toBe(0);
    });

    test("a missing right is named so", async () => {
      expect((await troubled("denied", () => target.describe(name))).code).toBe("accessDenied");
    });

    test("a page instead of an answer is no answer", async () => {
      const { code, unclear } = await troubled("html", () => target.describe(name));
      expect([code, unclear]).toEqual([expect.stringMatching(/^(badResponse|unreachable)$/), true]);
    });

    test("an answer 101 ends the call and has written nothing", { timeout: 60_000 }, async () => {
      if (!harness.guarded) return;
      const seen = await target.describe(name);
      const failure = await troubled("switched", () => target.put(name, VALUE, FIRST, seen));
      expect([failure.code, harness.value(name)]).toEqual(["unreachable", undefined]);
    });

    test("a connection that ends before anything is done has written nothing", async () => {
      const seen = await target.describe(name);
      const failure = await troubled("lostBefore", () => target.put(name, VALUE, FIRST, seen));
      expect([failure.code, harness.value(name)]).toEqual(["unreachable", undefined]);
      await put(VALUE, FIRST);
      expect(harness.value(name)).toBe(VALUE);
    });

    test("an answer lost after the write is unclear, and a repeat writes nothing, where the provider tells", async () => {
      const seen = await target.describe(name);
      harness.trouble("lostAfterWrite", 1);
      const first = await target.put(name, VALUE, FIRST, seen).catch((error: unknown) => error);
      if (first instanceof SyncFailure) expect(first.unclear).toBe(true);
      harness.heal();
      expect(harness.value(name)).toBe(VALUE);
      expect(await writesOf(() => put(VALUE, FIRST))).toBeLessThanOrEqual(marks ? 0 : 1);
      expect(harness.value(name)).toBe(VALUE);
    });
  });
}
