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

interface State {
  /** Current values. */
  values: Record<string, string>;
  history: KeyValue[];
  /** Time after a regeneration for which the service behind the keys does not accept the new value yet, in milliseconds. */
  delayMs: number;
  /** An accepted regeneration whose value is not valid yet. */
  pending: { key: string; value: string; regeneration: Regeneration; dueAt: number; lists: number } | undefined;
}

/** Stores the keys of resources and every value that they had. The store is in memory. */
export class ResourceKeys {
  readonly #clock: CloudClock;
  /** By resource, so that a resource that replaces another one has other keys. */
  readonly #states = new WeakMap<ArmResource, State>();

  constructor(clock: CloudClock) {
    this.#clock = clock;
  }

  /** Returns the current values by key. Empty if the resource has no keys. */
  current(resource: ArmResource): Keys {
    const state = this.#state(resource);
    if (state.pending !== undefined && this.#clock.now() >= state.pending.dueAt) this.finish(resource);
    return { ...state.values };
  }

  /** Returns the values that the service behind the keys accepts now, by key. */
  accepted(resource: ArmResource): Keys {
    const { delayMs } = this.#state(resource);
    const isKnown = ([key]: [string, string]) =>
      Date.parse(this.createdAt(resource, key)) + (this.#isFirst(resource, key) ? 0 : delayMs) <= this.#clock.now();
    return Object.fromEntries(Object.entries(this.current(resource)).filter(isKnown));
  }

  /** Sets the time after which the service behind the keys accepts a new value. Infinity: never. */
  setDelay(resource: ArmResource, milliseconds: number): void {
    this.#state(resource).delayMs = milliseconds;
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
    const from = new Date(this.#clock.now()).toISOString();
    state.history.findLast((one) => one.key === key)!.until = from;
    state.history.push({ key, value, from, regeneration });
    state.values[key] = value;
    state.pending = undefined;
  }

  #isFirst(resource: ArmResource, key: string): boolean {
    return this.#state(resource).history.filter((one) => one.key === key).length === 1;
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
    const state: State = { values, history, delayMs: 0, pending: undefined };
    this.#states.set(resource, state);
    return state;
  }
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
