import { createHash, randomBytes } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import { type KeyKind, type Keys, keyKind } from "./key-kinds.ts";
import type { ArmResource } from "./resource-store.ts";

/** Simulated time after which an accepted operation has ended, although no client asked for its result. */
const OPERATION_MS = 60_000;

/** One value that a key has or had. */
export interface KeyValue {
  key: string;
  value: string;
  /** When the value became valid and, if it no longer is, invalid. ISO 8601, by the simulated clock. */
  from: string;
  until?: string;
  /** The regeneration that made the value. Missing for the first value of a key. */
  regeneration?: Regeneration;
}

/** A request that regenerated a key. */
export interface Regeneration {
  /** Object ID of the caller. */
  by: string;
  /** The `x-ms-request-id` of the response, and the `x-ms-client-request-id` of the request. */
  requestId: string;
  clientRequestId?: string;
  /** When the request was accepted. ISO 8601. */
  acceptedAt: string;
}

/** A key's new value, as stored in the data folder. `at` is the simulated time in Unix milliseconds. */
export interface KeyChange {
  what: "resourceKey";
  resourceId: string;
  key: string;
  value: string;
  at: number;
}

export const isKeyChange = (change: { what: string }): change is KeyChange => change.what === "resourceKey";

interface State {
  /** Current values. */
  values: Record<string, string>;
  history: KeyValue[];
  /** An accepted regeneration whose value is not valid yet. */
  pending: { key: string; value: string; regeneration: Regeneration; dueAt: number; lists: number } | undefined;
}

/** Stores the keys of resources and every value that they had. */
export class ResourceKeys {
  readonly #clock: CloudClock;
  /** By resource, so that a resource that replaces another one has other keys. */
  readonly #states = new WeakMap<ArmResource, State>();
  /** Changes of earlier runs by resource ID in lower case, until the first use of the resource applies them. */
  readonly #restored = new Map<string, KeyChange[]>();
  #journal: ((change: KeyChange) => void) | undefined;

  constructor(clock: CloudClock) {
    this.#clock = clock;
  }

  /** Applies the changes of earlier runs, then reports each new change. */
  restore(changes: readonly KeyChange[], journal: (change: KeyChange) => void): void {
    for (const change of changes) {
      const id = change.resourceId.toLowerCase();
      this.#restored.set(id, [...(this.#restored.get(id) ?? []), change]);
    }
    this.#journal = journal;
  }

  /** Returns the current values by key. Empty if the resource has no keys. */
  current(resource: ArmResource): Keys {
    const state = this.#state(resource);
    if (state.pending !== undefined && this.#clock.now() >= state.pending.dueAt) this.finish(resource);
    return { ...state.values };
  }

  /** Returns when a key got its current value. ISO 8601. */
  createdAt(resource: ArmResource, key: string): string {
    return this.#state(resource).history.findLast((one) => one.key === key)!.from;
  }

  /** Returns every value that the resource's keys had, oldest first. */
  history(resource: ArmResource): KeyValue[] {
    this.current(resource);
    return structuredClone(this.#state(resource).history);
  }

  /** Whether an accepted regeneration has not ended. */
  isBusy(resource: ArmResource): boolean {
    this.current(resource);
    return this.#state(resource).pending !== undefined;
  }

  /**
   * Gives a key a new value. An asynchronous regeneration ends when a client reads its result (`finish`), with the second list
   * after it, or after a minute.
   */
  regenerate(resource: ArmResource, key: string, by: Omit<Regeneration, "acceptedAt">): void {
    const kind = keyKind(resource.type.type)!;
    const now = this.#clock.now();
    const regeneration = { ...by, acceptedAt: new Date(now).toISOString() };
    const value = write(kind, randomBytes(kind.format.bytes));
    this.#state(resource).pending = { key, value, regeneration, dueAt: now + OPERATION_MS, lists: 0 };
    if (!kind.asynchronous) this.finish(resource);
  }

  /** Counts a list. The first one after a regeneration was accepted can contain the old value. */
  listed(resource: ArmResource): void {
    const { pending } = this.#state(resource);
    if (pending !== undefined && pending.lists++ > 0) this.finish(resource);
  }

  /** Ends an accepted regeneration: the new value is valid, and the old one no longer. */
  finish(resource: ArmResource): void {
    const state = this.#state(resource);
    if (state.pending === undefined) return;
    const { key, value, regeneration } = state.pending;
    const at = this.#clock.now();
    replace(state, { key, value, from: new Date(at).toISOString(), regeneration });
    state.pending = undefined;
    this.#journal?.({ what: "resourceKey", resourceId: resource.id, key, value, at });
  }

  #state(resource: ArmResource): State {
    const stored = this.#states.get(resource);
    if (stored !== undefined) return stored;
    const kind = keyKind(resource.type.type);
    const keys = kind?.keys ?? [];
    const values = Object.fromEntries(
      keys.map((key) => [key, initialKey(resource.type.type, namesIn(resource.id), key)]),
    );
    // The first values are as old as the simulated cloud can say.
    const from = new Date(0).toISOString();
    const history = keys.map((key) => ({ key, value: values[key]!, from }));
    const state: State = { values, history, pending: undefined };
    const id = resource.id.toLowerCase();
    for (const { key, value, at } of this.#restored.get(id) ?? [])
      replace(state, { key, value, from: new Date(at).toISOString() });
    // A later resource with the same ID starts with new keys.
    this.#restored.delete(id);
    this.#states.set(resource, state);
    return state;
  }
}

/** Replaces the current value of a key. */
function replace(state: State, value: KeyValue): void {
  state.history.findLast(({ key }) => key === value.key)!.until = value.from;
  state.history.push(value);
  state.values[value.key] = value.value;
}

/** Returns the names in a resource ID, joined by slashes: `namespace/queue/rule`. */
const namesIn = (id: string): string =>
  id
    .split("/")
    .slice(8)
    .filter((_, index) => index % 2 === 0)
    .join("/");

/**
 * Returns the first value of a key, which follows from the names, so that a company can declare secrets with it.
 * @param name - Name of the resource, after those of its parents: `namespace/queue/rule`.
 * @throws {Error} if the type has no keys.
 */
export function initialKey(type: string, name: string, key: string): string {
  const kind = keyKind(type);
  if (kind === undefined) throw new Error(`Resources of type ${type} have no keys`);
  const parts: Buffer[] = [];
  for (let part = 0; part * 32 < kind.format.bytes; part++) {
    parts.push(createHash("sha256").update(`${kind.type} ${name} ${key} ${part}`.toLowerCase()).digest());
  }
  return write(kind, Buffer.concat(parts).subarray(0, kind.format.bytes));
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** Writes bytes as a key of the kind. */
function write({ format: { encoding } }: KeyKind, bytes: Buffer): string {
  if (encoding !== "alphanumeric") return bytes.toString(encoding);
  return [...bytes].map((byte) => LETTERS[byte % LETTERS.length]).join("");
}
