import fc from "fast-check";
import { expect, test } from "vitest";
import { consumersOf, effectOf, scoreAndDrivers } from "../../shared/dependencies/blast-radius.ts";
import { CONSUMER_KINDS, type Edge } from "../../shared/dependencies/edge.ts";
import type { FoundEdge } from "../../shared/dependencies/query.ts";

// The blast radius of a secret: a score from 0 to 100 that says how much a rotation of the secret affects its consumers.

/** Returns a stored edge (a resource that uses the secret) with defaults. */
const edgeFor = (edge: Partial<Edge> & { id?: string; environment?: string }): FoundEdge => {
  const { id = "/a", environment, ...members } = edge;
  const resource = { id, kind: "webApp" as const, name: id, ...(environment === undefined ? {} : { environment }) };
  return {
    edge: {
      vaultName: "kv",
      type: "secret",
      name: "db",
      resource,
      strength: "references",
      evidence: "A",
      refresh: { how: "automatic" },
      ...members,
      unit: "azure|s1",
      toldAt: "2026-11-22T00:00:00.000Z",
    },
    seenAt: "2026-11-22T00:00:00.000Z",
  };
};
const radius = (edges: FoundEdge[], expiring = false) => scoreAndDrivers(consumersOf(edges), expiring);
const score = (edges: FoundEdge[], expiring = false) => radius(edges, expiring).score;

const edgeFields = fc.record({
  id: fc.constantFrom(..."abcdefgh").map((letter) => `/${letter}`),
  environment: fc.option(fc.constantFrom("production", "test", "Prod-eu", ""), { nil: undefined }),
  kind: fc.constantFrom(...CONSUMER_KINDS),
  strength: fc.constantFrom("references", "entitled", "observed"),
  evidence: fc.constantFrom("A", "B"),
  pinned: fc.option(fc.constant("v1"), { nil: undefined }),
  how: fc.constantFrom("automatic", "action", "blind", "willBreak"),
  resolved: fc.option(fc.boolean(), { nil: undefined }),
});
const anyEdge = edgeFields.map(({ id, environment, kind, strength, evidence, pinned, how, resolved }) => {
  const stored = edgeFor({
    ...(environment === undefined ? {} : { environment }),
    id,
    strength,
    evidence,
    refresh: { how },
    ...(pinned === undefined ? {} : { pinned }),
    ...(resolved === undefined ? {} : { state: { resolved, status: "S" } }),
  } as never);
  return { ...stored, edge: { ...stored.edge, resource: { ...stored.edge.resource, kind } } };
});

test("an additional edge does not lower the score, and the order of edges does not change it", () => {
  fc.assert(
    fc.property(fc.array(anyEdge, { maxLength: 30 }), anyEdge, fc.boolean(), (edges, additionalEdge, expiring) => {
      const before = radius(edges, expiring);
      const after = score([...edges, additionalEdge], expiring);
      expect(after).toBeGreaterThanOrEqual(before.score);
      expect(after).toBeLessThanOrEqual(100);
      expect(radius([...edges].reverse(), expiring)).toEqual(before);
      expect(before.score === 0 || before.drivers.length > 0).toBe(true);
      for (const { points } of before.drivers) expect(points).toBeGreaterThanOrEqual(0);
    }),
    { numRuns: 300 },
  );
});

test("the scores are those of the examples in docs/dependencies.md", () => {
  const apps = (count: number, more: Parameters<typeof edgeFor>[0] = {}) =>
    Array.from({ length: count }, (_, index) => edgeFor({ id: `/${index}`, ...more }));
  expect(score([])).toBe(0);
  expect(score(apps(1, { environment: "test" }))).toBe(5);
  expect(score(apps(1, { environment: "production" }))).toBe(13);
  expect(score(apps(1, { environment: "production", pinned: "v1" }))).toBe(31);
  expect(score(apps(10, { environment: "production" }))).toBe(60);
  expect(score(apps(40, { environment: "production", refresh: { how: "action" } }))).toBe(90);
  expect(score(apps(30, { strength: "entitled" }))).toBe(13);
  expect(score(apps(10, { environment: "production" }), true)).toBe(65);
});

test("a resource and its managed identity, by role or in a log, are one consumer with the resource's name", () => {
  const identity = (id: string, strength: Edge["strength"], identityOf?: string) => {
    const found = edgeFor({ id, strength, refresh: { how: "blind" } });
    const resource = { id, kind: "principal" as const, name: "app", ...(identityOf && { identityOf }) };
    return { ...found, edge: { ...found.edge, resource } };
  };
  const consumers = consumersOf([
    identity("entra/1", "entitled", "/APP"),
    edgeFor({ id: "/app", environment: "production" }),
    identity("entra/1", "observed", "/app"),
    identity("entra/2", "entitled", "/unknown"),
    identity("entra/3", "entitled"),
  ]);
  expect(consumers.map(({ resource, edges }) => [resource.id, edges.length])).toEqual([
    ["/app", 3],
    ["entra/2", 1],
    ["entra/3", 1],
  ]);
  expect(scoreAndDrivers(consumers, false).drivers.find(({ driver }) => driver === "entitled")?.count).toBe(2);
});

test("each driver reports how much lower the score would be without it", () => {
  const { score, drivers } = radius([
    edgeFor({ id: "/a", environment: "production", refresh: { how: "blind" } }),
    edgeFor({ id: "/b", environment: "test", state: { resolved: false, status: "SecretNotFound" } }),
    edgeFor({ id: "/c", strength: "entitled" }),
  ]);
  expect(score).toBe(28);
  expect(drivers.map(({ driver, count, points }) => ({ driver, count, points }))).toEqual([
    { driver: "consumers", count: 2, points: 28 },
    { driver: "production", count: 1, points: 13 },
    { driver: "blind", count: 1, points: 9 },
    { driver: "unresolved", count: 1, points: 2 },
    { driver: "entitled", count: 1, points: 1 },
  ]);
});

test("the effect of a rotation on a consumer is described by how the consumer gets new values", () => {
  const effect = (edge: Parameters<typeof edgeFor>[0]) => effectOf(edgeFor(edge).edge);
  expect(effect({ refresh: { how: "automatic", slowestSeconds: 86_400 } })).toBe(
    "It uses the new value automatically within 1 day.",
  );
  expect(effect({ refresh: { how: "automatic", slowestSeconds: 5400 } })).toContain("within 90 minutes.");
  expect(effect({ refresh: { how: "action" } })).toContain("after an update or restart");
  expect(effect({ refresh: { how: "blind" } })).toContain("can't tell when");
  expect(effect({ refresh: { how: "willBreak" } })).toContain("keeps using the old value");
  expect(effect({ pinned: "abc" })).toContain("pinned to version abc");
  expect(effect({ strength: "entitled" })).toContain("has permission to read");
});
