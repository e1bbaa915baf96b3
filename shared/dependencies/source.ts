import type { Edge, Resource } from "./edge.ts";
import type { Failure } from "./rows.ts";

/** What could not be looked into. It hides nothing else. */
export interface NotSeen {
  /**
   * A resource's id, `/subscriptions/<id>`, or what another system calls it. What was known before of resources whose id is
   * this, or goes on after it with `/`, stays until they can be looked into again.
   */
  scope: string;
  code: string;
  message: string;
  remedy: string;
}

/** What a reading tells, one resource after the other. */
export type ReadingItem =
  /**
   * All that is known of one resource now; without edges it uses nothing. `partial`: something of it could not be looked
   * into, which a `notSeen` says; its edges of before stay. A resource is told of once in a reading.
   */
  | { resource: Resource; edges: Edge[]; partial?: boolean }
  /** There is no such resource any more. */
  | { gone: string }
  | { notSeen: NotSeen }
  /** An earlier part of this reading told of the resource, or why it could not be looked into. */
  | { earlier: string }
  /** A reading that runs out of time goes on behind this place: all before it was told. */
  | { place: string };

export interface ReadOptions {
  since?: Date | undefined;
  signal?: AbortSignal | undefined;
  /** Without `since`: the place that an earlier part of this reading came to. */
  after?: string | undefined;
  /** The run that the reading is part of. */
  runId?: string | undefined;
}

/** A system whose resources use assets. Each unit of it, such as a subscription, is one piece of work. */
export interface EdgeSource {
  readonly name: "azure" | "devops" | "sync" | "logs" | "literals";
  /** Why it is not read in this deployment. That is in the coverage and no failure; what was known of it leaves. */
  readonly off?: Failure | undefined;
  /** It is always read in full, since that costs little. */
  readonly whole?: boolean;
  /**
   * All there are now: what was known of others leaves.
   *
   * @throws {CloudFailure} when they can't be listed.
   */
  units(): Promise<string[]>;
  /**
   * All resources of a unit; with `since` only those that may have changed since then. A resource that a reading without
   * `since` does not tell of, and that it did not fail to see, is gone.
   *
   * @throws {CloudFailure} when the unit as a whole can't be read.
   */
  read(unit: string, options: ReadOptions): AsyncGenerator<ReadingItem>;
}
