import type { Appender } from "../audit/event.ts";
import type { Graph } from "../platform/azure/graph.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { SignInOutcome } from "../platform/azure/sign-in-proof.ts";
import type { VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { ConsumersOfSecrets } from "./consumer.ts";
import { ROTATIONS, type RotationRecord, WriterLeases } from "./rotation.ts";
import type { RotationRows } from "./rows.ts";
import { Later, TakenOver } from "./stop.ts";
import type { Matches } from "./targets.ts";
import type { SecretUsage } from "./usage.ts";

/**
 * A worker that has not written for so long is taken for dead. Each write of the turn makes it last longer; one call to the
 * cloud ends within 4 minutes, its repeats included (`CALL_LIMITS`).
 */
export const LEASE_MS = 5 * MINUTE_MS;

/** How often a worker writes while it is amid more than one call. */
const RENEWED_MS = MINUTE_MS;

/**
 * Between two changes of the tenant's applications: two within 300 ms are refused. The store's clock counts seconds, so that
 * an age of two is more than one. https://learn.microsoft.com/graph/throttling-limits
 */
const PAUSE_MS = 2 * SECOND_MS;
/** While somebody else changes one: that takes a second or two, unless he is dead. */
const BUSY_SECONDS = { least: 3, most: 30 };
const LEASE_ROW = "tenant";

/** Signs in once with a client secret of an application, on a new connection. Nothing is kept. */
export type SignIn = (appId: string, secret: string) => Promise<SignInOutcome>;

/** What the steps of a rotation work with. */
export interface RotationWorld {
  tables: Tables;
  rows: RotationRows;
  graph: Graph;
  signIn: SignIn;
  vaults: VaultSecretsClients;
  /** Where a new secret is held until it is in use. */
  own: ServiceKeyVault;
  matches: Matches;
  consumers: ConsumersOfSecrets;
  usage: SecretUsage;
  audit: Appender;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** One worker's hold on a rotation, for one step of it. */
export interface Turn {
  readonly world: RotationWorld;
  readonly caller: Caller;
  /** As it was last read or written. */
  readonly record: RotationRecord;
  now(): Date;
  /**
   * Writes what changes. `change` may be called again: people cancel and finish meanwhile.
   *
   * @throws {TakenOver} when another worker has the rotation.
   */
  save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void>;
  /**
   * Does work of several calls to the cloud, with writes beside it that make the hold last: nobody else may begin the same
   * while this worker lives. It saves nothing itself.
   */
  keeping<T>(work: () => Promise<T>): Promise<T>;
  /**
   * Changes applications of the tenant, while nobody else of this service does.
   *
   * @throws {Later} when somebody does, or did just now.
   */
  directory<T>(write: () => Promise<T>): Promise<T>;
}

export function createTurn(world: RotationWorld, claimed: Row<RotationRecord>, owner: string, caller: Caller): Turn {
  const { tables, rows, clock, randomness } = world;
  let row = claimed;

  async function save(change: (record: RotationRecord) => Partial<RotationRecord>): Promise<void> {
    for (;;) {
      try {
        row = await rows.save(row, { ...row, ...change(row) });
        return;
      } catch (error) {
        if (!(error instanceof RowChanged)) throw error;
        const now = await rows.get(row.rotationId);
        if (now?.working !== owner) throw new TakenOver();
        row = now;
      }
    }
  }

  /** @returns what gives the lease back. */
  async function lease(): Promise<() => Promise<void>> {
    const found = await tables.getWithAge(WriterLeases, ROTATIONS, LEASE_ROW);
    if (found && found.row.owner !== "" && found.ageMs < LEASE_MS) {
      throw new Later(Math.min(BUSY_SECONDS.most, Math.max(BUSY_SECONDS.least, Math.ceil(found.ageMs / SECOND_MS))));
    }
    if (found && found.row.owner === "" && found.ageMs < PAUSE_MS) throw new Later(PAUSE_MS / SECOND_MS);
    const write = (held: string) => ({ owner: held, writeId: randomness.ulid(clock.now()) });
    try {
      const taken =
        found === undefined
          ? await tables.insert(WriterLeases, ROTATIONS, LEASE_ROW, write(owner))
          : await tables.replace(WriterLeases, { ...found.row, ...write(owner) });
      return async () => void (await undefinedIfChanged(tables.replace(WriterLeases, { ...taken, ...write("") })));
    } catch (error) {
      if (isConflict(error)) throw new Later(BUSY_SECONDS.least);
      throw error;
    }
  }

  return {
    world,
    caller,
    get record() {
      return row;
    },
    now: () => clock.now(),
    save,
    async keeping<T>(work: () => Promise<T>) {
      // Who was taken over is told so by the save after the work.
      const renewals = startHeartbeat(RENEWED_MS, () => save(() => ({})));
      try {
        return await work();
      } finally {
        await renewals.stop();
      }
    },
    async directory<T>(write: () => Promise<T>) {
      const giveBack = await lease();
      try {
        return await write();
      } finally {
        await giveBack();
      }
    },
  };
}
