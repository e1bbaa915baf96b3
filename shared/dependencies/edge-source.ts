import type { Edge, Resource } from "./edge.ts";
import type { Failure } from "./rows.ts";

/** Something that could not be read. Other resources are not affected. */
export interface NotSeen {
  /**
   * A resource ID, `/subscriptions/<id>`, or an ID of another system. Stored dependencies of this resource and of those below
   * it (`<scope>/…`) stay until they can be read again.
   */
  scope: string;
  code: string;
  message: string;
  remedy: string;
}

/** Items that a run over a unit (a part of a source, such as a subscription) reports, one after the other. */
export type ReadingItem =
  /**
   * The current state of one resource. Without `edges` it uses nothing. `partial`: a part could not be read, as a `notSeen`
   * item says, so earlier dependencies stay. A run reports each resource once.
   */
  | { resource: Resource; edges: Edge[]; partial?: boolean }
  /** The resource no longer exists. */
  | { gone: string }
  | { notSeen: NotSeen }
  /** An earlier part of this run reported the resource, or why it could not be read. */
  | { earlier: string }
  /** A position: everything before it was reported. A run that takes too long continues after it. */
  | { position: string };

/** Options of a read of a unit. */
export interface ReadOptions {
  /** Only resources that may have changed since this time. Undefined: all resources. */
  since?: Date | undefined;
  signal?: AbortSignal | undefined;
  /** In a full run: the position up to which earlier parts have read. */
  after?: string | undefined;
  /** ID of the run. */
  runId?: string | undefined;
}

/**
 * A source of dependencies: a system whose resources use assets. It is divided into units, such as subscriptions, which are
 * read one by one.
 */
export interface EdgeSource {
  readonly name: "azure" | "devops" | "sync" | "logs" | "literals";
  /**
   * Why the source is not read in this deployment. It becomes a coverage item, not a failure, and its stored dependencies are
   * deleted.
   */
  readonly off?: Failure | undefined;
  /** Whether also an incremental run reads the source completely, because that is cheap. */
  readonly whole?: boolean;
  /**
   * Returns all current units. Stored dependencies of other units are deleted.
   *
   * @throws {CloudFailure} if the units can't be listed.
   */
  units(): Promise<string[]>;
  /**
   * Reads all resources of a unit, or with `since` only those that may have changed. Without `since`, a resource that is
   * neither reported nor in a scope that could not be read is deleted.
   *
   * @throws {CloudFailure} if the unit as a whole can't be read.
   */
  read(unit: string, options: ReadOptions): AsyncGenerator<ReadingItem>;
}
