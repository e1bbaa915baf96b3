import { DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS } from "../platform/time.ts";
import type { ConsumerKind, Edge, Resource } from "./edge.ts";
import type { FoundEdge } from "./query.ts";

/**
 * Scores how much a rotation of an asset affects. Every consumer has a weight. The score is 100 × sum ÷ (sum + HALF): it starts
 * at 0, increases with every consumer and stays below 100. docs/dependencies.md shows the formula with examples.
 */

/** Sum of weights at which the score is 50: seven production web apps that take the new value without help. */
const HALF = 20;

const STRENGTH: Record<Edge["strength"], number> = { references: 1, observed: 1, entitled: 0.05 };
const REFRESH: Record<Edge["refresh"]["how"], number> = { automatic: 1, action: 1.5, blind: 2, willBreak: 3 };
const ENVIRONMENT = { production: 3, unknown: 2, other: 1 };
/** Kinds of resources that serve other resources. */
const SHARED: ReadonlySet<ConsumerKind> = new Set([
  "apiManagement",
  "applicationGateway",
  "frontDoor",
  "kubernetesCluster",
  "appConfiguration",
  "devopsVariableGroup",
  "devopsServiceConnection",
]);
const SHARED_FACTOR = 2;
const UNRESOLVED_FACTOR = 1.5;
/** Factor for an asset that expires soon, because there is little time to fix problems. */
const EXPIRING_FACTOR = 1.25;

const PRODUCTION = /^(prod|prd|production|live)\b/i;
export const environmentOf = ({ environment }: Resource): keyof typeof ENVIRONMENT =>
  environment === undefined ? "unknown" : PRODUCTION.test(environment) ? "production" : "other";

export interface Consumer {
  resource: Resource;
  /** All dependencies of the resource, heaviest first. */
  edges: FoundEdge[];
  weight: number;
  effect: string;
}

export const DRIVERS = [
  "consumers",
  "production",
  "pinned",
  "blind",
  "action",
  "shared",
  "unresolved",
  "entitled",
  "expiring",
] as const;
/** A part of the score, with its size. */
export interface Driver {
  driver: (typeof DRIVERS)[number];
  /** Number of consumers. */
  count: number;
  /** Decrease of the score without it. */
  points: number;
  message: string;
}

type Factor = "strength" | "refresh" | "environment" | "shared" | "unresolved";

function weightOf({ edge }: FoundEdge, without?: Factor): number {
  const factors: Record<Factor, number> = {
    strength: STRENGTH[edge.strength],
    refresh: REFRESH[edge.pinned === undefined ? edge.refresh.how : "willBreak"],
    environment: ENVIRONMENT[environmentOf(edge.resource)],
    shared: SHARED.has(edge.resource.kind) ? SHARED_FACTOR : 1,
    unresolved: edge.state?.resolved === false ? UNRESOLVED_FACTOR : 1,
  };
  if (without) factors[without] = 1;
  return Object.values(factors).reduce((product, factor) => product * factor, 1);
}

const scoreOf = (sum: number): number => Math.round((100 * sum) / (sum + HALF));

/** Groups dependencies into consumers by resource, heaviest first. The heaviest dependency of a resource counts. */
export function consumersOf(found: readonly FoundEdge[]): Consumer[] {
  const ids = new Set(found.map(({ edge }) => edge.resource.id.toLowerCase()));
  // A managed identity that a log contains counts as its resource, if that resource is a known consumer.
  const byResource = Map.groupBy(found, ({ edge: { resource } }) => {
    const owner = resource.identityOf?.toLowerCase();
    return owner !== undefined && ids.has(owner) ? owner : resource.id.toLowerCase();
  });
  return [...byResource.values()]
    .map((edges): Consumer => {
      const sorted = edges
        .map((one) => ({ one, weight: weightOf(one), text: JSON.stringify(one.edge) }))
        .sort((a, b) => b.weight - a.weight || (a.text < b.text ? -1 : 1));
      const [first] = sorted as [(typeof sorted)[number]];
      return {
        resource: (sorted.find(({ one }) => one.edge.resource.identityOf === undefined) ?? first).one.edge.resource,
        edges: sorted.map(({ one }) => one),
        weight: first.weight,
        effect: effectOf(first.one.edge),
      };
    })
    .sort((a, b) => b.weight - a.weight || (a.resource.id < b.resource.id ? -1 : 1));
}

/**
 * Returns the score with its drivers.
 *
 * @param expiring - Whether the asset has expired or expires within the days of the policy.
 */
export function scoreAndDrivers(
  consumers: readonly Consumer[],
  expiring: boolean,
): { score: number; drivers: Driver[] } {
  const factor = expiring ? EXPIRING_FACTOR : 1;
  const heaviest = consumers.map(({ edges }) => edges[0]!);
  const sum = consumers.reduce((all, { weight }) => all + weight, 0);
  const score = scoreOf(sum * factor);
  const drivers: Driver[] = [];
  const add = (
    driver: Driver["driver"],
    is: (one: FoundEdge) => boolean,
    message: (count: number) => string,
    without: (one: FoundEdge) => number,
  ) => {
    const about = heaviest.filter(is);
    if (about.length === 0) return;
    const rest = heaviest.reduce((all, one) => all + (is(one) ? without(one) : weightOf(one)), 0);
    const points = score - scoreOf(rest * factor);
    drivers.push({ driver, count: about.length, points, message: message(about.length) });
  };
  const uses = ({ edge }: FoundEdge) => edge.strength !== "entitled";
  const pinned = ({ edge }: FoundEdge) => edge.pinned !== undefined || edge.refresh.how === "willBreak";
  const count = (n: number, one: string, many: string) => (n === 1 ? `1 ${one}` : `${n} ${many}`);
  add(
    "consumers",
    uses,
    (n) => count(n, "consumer uses it.", "consumers use it."),
    () => 0,
  );
  add(
    "production",
    (one) => uses(one) && environmentOf(one.edge.resource) === "production",
    (n) => count(n, "of them is in production.", "of them are in production."),
    (one) => weightOf(one, "environment"),
  );
  add(
    "pinned",
    (one) => uses(one) && pinned(one),
    (n) => count(n, "keeps using the old value.", "keep using the old value."),
    (one) => weightOf(one, "refresh"),
  );
  add(
    "blind",
    (one) => uses(one) && !pinned(one) && one.edge.refresh.how === "blind",
    (n) => `For ${n}, the arrival of the new value can't be observed.`,
    (one) => weightOf(one, "refresh"),
  );
  add(
    "action",
    (one) => uses(one) && !pinned(one) && one.edge.refresh.how === "action",
    (n) => count(n, "takes the new value only after a trigger.", "take the new value only after a trigger."),
    (one) => weightOf(one, "refresh"),
  );
  add(
    "shared",
    (one) => uses(one) && SHARED.has(one.edge.resource.kind),
    (n) => `${n} of them have consumers of their own.`,
    (one) => weightOf(one, "shared"),
  );
  add(
    "unresolved",
    ({ edge }) => edge.state?.resolved === false,
    (n) => count(n, "reference can't be followed now.", "references can't be followed now."),
    (one) => weightOf(one, "unresolved"),
  );
  add(
    "entitled",
    (one) => !uses(one),
    (n) => `${n} more may read it.`,
    () => 0,
  );
  if (expiring && consumers.length > 0) {
    const points = score - scoreOf(sum);
    drivers.push({ driver: "expiring", count: consumers.length, points, message: "It has expired or does so soon." });
  }
  return { score, drivers: drivers.sort((a, b) => b.points - a.points || (a.driver < b.driver ? -1 : 1)) };
}

/** Describes the effect of a rotation on a consumer. */
export function effectOf({ refresh, pinned, strength, resource }: Edge): string {
  if (strength === "entitled") return "It may read the asset; whether it does is not known.";
  if (strength === "observed")
    return "A log contains a read of the asset. Where the consumer stores the value is unknown.";
  const managed = resource.managedBy === undefined ? "" : ` Its settings are written by ${resource.managedBy}.`;
  if (pinned !== undefined) return `Pinned to version ${pinned}: keeps using that value.${managed}`;
  switch (refresh.how) {
    case "automatic": {
      const within = refresh.slowestSeconds === undefined ? "" : ` within ${timeText(refresh.slowestSeconds)}`;
      return `Takes the new value without action${within}.${managed}`;
    }
    case "action":
      return `Takes the new value after a trigger, which a full-stack rotation sends.${managed}`;
    case "blind":
      return `The time when it takes the new value can't be observed from outside.${managed}`;
    case "willBreak":
      return `Holds a copy and keeps using the old value until someone changes it.${managed}`;
  }
}

function timeText(seconds: number): string {
  const units = [
    [DAY_SECONDS, "day"],
    [HOUR_SECONDS, "hour"],
    [MINUTE_SECONDS, "minute"],
  ] as const;
  const [size, name] = units.find(([size]) => seconds >= size && seconds % size === 0) ?? [1, "second"];
  const count = seconds / size;
  return `${count} ${name}${count === 1 ? "" : "s"}`;
}
