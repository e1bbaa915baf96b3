import { DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS } from "../platform/time.ts";
import type { ConsumerKind, Edge, Resource } from "./edge.ts";
import type { FoundEdge } from "./query.ts";

/**
 * The blast radius of an asset: a score that says how much a rotation of the asset affects its consumers. Each consumer has a
 * weight, the product of the factors below. The score is 100 × sum ÷ (sum + HALF_SCORE_WEIGHT), rounded: it is 0 without
 * consumers and increases with each consumer towards 100. docs/dependencies.md shows the formula with examples.
 */

/** Sum of weights at which the score is 50: about seven production web apps that take the new value without help. */
const HALF_SCORE_WEIGHT = 20;

/**
 * Factors by how certain the use is, by how the consumer gets a new version, and by environment. `entitled`: it only has
 * access. `blind`: the time can't be observed. `willBreak`: it keeps the old value.
 */
const STRENGTH: Record<Edge["strength"], number> = { references: 1, observed: 1, entitled: 0.05 };
const REFRESH: Record<Edge["refresh"]["how"], number> = { automatic: 1, action: 1.5, blind: 2, willBreak: 3 };
const ENVIRONMENT = { production: 3, unknown: 2, other: 1 };
/** Kinds of resources that serve other resources. */
const SHARED_KINDS: ReadonlySet<ConsumerKind> = new Set([
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
/** Returns whether a resource's environment tag names production, another environment, or is absent. */
export const environmentOf = ({ environment }: Resource): keyof typeof ENVIRONMENT =>
  environment === undefined ? "unknown" : PRODUCTION.test(environment) ? "production" : "other";

/** A resource that uses the asset. */
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
/** A reason for the score, such as `production`: how many consumers it covers, and how much of the score it explains. */
export interface Driver {
  driver: (typeof DRIVERS)[number];
  /** Number of consumers. */
  count: number;
  /** Decrease of the score without it. */
  points: number;
  message: string;
}

type Factor = "strength" | "refresh" | "environment" | "shared" | "unresolved";

/** Returns the product of the factors of a dependency. If `without` names a factor, that factor counts as 1. */
function weightOf({ edge }: FoundEdge, without?: Factor): number {
  const factors: Record<Factor, number> = {
    strength: STRENGTH[edge.strength],
    refresh: REFRESH[edge.pinned === undefined ? edge.refresh.how : "willBreak"],
    environment: ENVIRONMENT[environmentOf(edge.resource)],
    shared: SHARED_KINDS.has(edge.resource.kind) ? SHARED_FACTOR : 1,
    unresolved: edge.state?.resolved === false ? UNRESOLVED_FACTOR : 1,
  };
  if (without) factors[without] = 1;
  return Object.values(factors).reduce((product, factor) => product * factor, 1);
}

const scoreOf = (sum: number): number => Math.round((100 * sum) / (sum + HALF_SCORE_WEIGHT));

/** Groups dependencies into consumers by resource, heaviest first. The heaviest dependency of a resource counts. */
export function consumersOf(found: readonly FoundEdge[]): Consumer[] {
  const ids = new Set(found.map(({ edge }) => edge.resource.id.toLowerCase()));
  // A managed identity that has access, or that a log contains, counts as its resource, if that resource is a known consumer.
  const byResource = Map.groupBy(found, ({ edge: { resource } }) => {
    const identityOf = resource.identityOf?.toLowerCase();
    return identityOf !== undefined && ids.has(identityOf) ? identityOf : resource.id.toLowerCase();
  });
  return [...byResource.values()]
    .map((edges): Consumer => {
      const sorted = edges
        .map((one) => ({ one, weight: weightOf(one), text: JSON.stringify(one.edge) }))
        // By text among equal weights, so that every answer has the same order.
        .sort((a, b) => b.weight - a.weight || (a.text < b.text ? -1 : 1));
      const [first] = sorted as [(typeof sorted)[number]];
      return {
        // Shows the resource itself, not its managed identity.
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
  // Each consumer counts with its heaviest dependency, the first one.
  const heaviestEdges = consumers.map(({ edges }) => edges[0]!);
  const sum = consumers.reduce((all, { weight }) => all + weight, 0);
  const score = scoreOf(sum * factor);
  const drivers: Driver[] = [];
  // `isCovered` selects the consumers that a driver covers, and `without` returns their weight without the driver.
  const add = (
    driver: Driver["driver"],
    isCovered: (one: FoundEdge) => boolean,
    message: (count: number) => string,
    without: (one: FoundEdge) => number,
  ) => {
    const covered = heaviestEdges.filter(isCovered);
    if (covered.length === 0) return;
    const sumWithout = heaviestEdges.reduce((total, one) => total + (isCovered(one) ? without(one) : weightOf(one)), 0);
    const points = score - scoreOf(sumWithout * factor);
    drivers.push({ driver, count: covered.length, points, message: message(covered.length) });
  };
  const uses = ({ edge }: FoundEdge) => edge.strength !== "entitled";
  const pinned = ({ edge }: FoundEdge) => edge.pinned !== undefined || edge.refresh.how === "willBreak";
  const count = (n: number, one: string, many: string) => (n === 1 ? `1 ${one}` : `${n} ${many}`);
  add(
    "consumers",
    uses,
    (n) => count(n, "confirmed consumer uses the asset.", "confirmed consumers use the asset."),
    () => 0,
  );
  add(
    "production",
    (one) => uses(one) && environmentOf(one.edge.resource) === "production",
    (n) => count(n, "confirmed consumer is in production.", "confirmed consumers are in production."),
    (one) => weightOf(one, "environment"),
  );
  add(
    "pinned",
    (one) => uses(one) && pinned(one),
    (n) => count(n, "consumer keeps using the old value.", "consumers keep using the old value."),
    (one) => weightOf(one, "refresh"),
  );
  add(
    "blind",
    (one) => uses(one) && !pinned(one) && one.edge.refresh.how === "blind",
    (n) => `The service can't tell whether ${count(n, "consumer uses", "consumers use")} the new value.`,
    (one) => weightOf(one, "refresh"),
  );
  add(
    "action",
    (one) => uses(one) && !pinned(one) && one.edge.refresh.how === "action",
    (n) => `${count(n, "consumer", "consumers")} must be updated or restarted to use the new value.`,
    (one) => weightOf(one, "refresh"),
  );
  add(
    "shared",
    (one) => uses(one) && SHARED_KINDS.has(one.edge.resource.kind),
    (n) => `${count(n, "consumer serves", "consumers serve")} other resources, such as a gateway.`,
    (one) => weightOf(one, "shared"),
  );
  add(
    "unresolved",
    ({ edge }) => edge.state?.resolved === false,
    (n) => `${count(n, "consumer has a reference", "consumers have a reference")} that is not resolved.`,
    (one) => weightOf(one, "unresolved"),
  );
  add(
    "entitled",
    (one) => !uses(one),
    (n) =>
      count(
        n,
        "possible consumer has permission to read the asset.",
        "possible consumers have permission to read the asset.",
      ),
    () => 0,
  );
  if (expiring && consumers.length > 0) {
    const points = score - scoreOf(sum);
    drivers.push({
      driver: "expiring",
      count: consumers.length,
      points,
      message: "The asset has expired or expires soon.",
    });
  }
  return { score, drivers: drivers.sort((a, b) => b.points - a.points || (a.driver < b.driver ? -1 : 1)) };
}

/** Describes the effect of a rotation on a consumer. */
export function effectOf({ refresh, pinned, strength, resource }: Edge): string {
  if (strength === "entitled") return "It has permission to read the asset, but no use was found.";
  if (strength === "observed")
    return "A log shows that it read the asset. The service doesn't know where it stores the value.";
  const managed = resource.managedBy === undefined ? "" : ` ${resource.managedBy} manages its settings.`;
  if (pinned !== undefined) return `It is pinned to version ${pinned} and keeps using that value.${managed}`;
  switch (refresh.how) {
    case "automatic": {
      const within = refresh.slowestSeconds === undefined ? "" : ` within ${timeText(refresh.slowestSeconds)}`;
      return `It uses the new value automatically${within}.${managed}`;
    }
    case "action":
      return `It uses the new value only after an update or restart, which a rotation does.${managed}`;
    case "blind":
      return `The service can't tell when it uses the new value.${managed}`;
    case "willBreak":
      return `It has a copy of the value and keeps using the old value until someone changes the copy.${managed}`;
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
