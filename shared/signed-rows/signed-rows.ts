import type { AuditRecorder } from "../audit/event.ts";
import { type SigningState, type SigningStates, UNSIGNED_GRACE_MS } from "../platform/azure/signing-state.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { ComparedRow, Finding, SignedPartitions } from "../platform/storage/signed-partitions.ts";
import { StorageCorrupt } from "../platform/storage/tables.ts";
import type { RowLocation, UnreadableRows } from "../unreadable-rows/unreadable-rows.ts";
import { SIGNED_RANGES } from "./ranges.ts";

/** What `GET /health?deep=true` says about the signed rows. */
export interface SigningStatus {
  /** `off`: the service has no key vault. `starting`: the rows are not signed yet, or instances of an earlier version may run. */
  status: "off" | "starting" | "signed" | "unknown";
  /** Time since which the rows are signed, ISO 8601. */
  since?: string;
  /** Why the status is unknown, or that other stores use the same key. */
  detail?: string;
}

/**
 * The signed rows of users, single sign-on, settings and alerts (all are in ranges.ts). The service signs the rows of an earlier
 * version once. Then it compares the rows every minute with their lists, to detect that someone removed a row, restored a removed
 * row, or replaced a row by an older copy of it.
 *
 * The key vault stores the state, so that someone who can write only tables can't make the service accept other rows. The state
 * says since when the rows are signed, until when unsigned rows of earlier versions are accepted, and whether that time is over
 * (`complete`). It also has, by table, the sequences of its 16 lists. A sequence rises when the list was written, so an older
 * list has a lower one.
 */
export interface SignedRows {
  /**
   * Signs the rows, or compares them with their lists. A row that differs is set aside, so that no instance uses it, and
   * reported as unreadable. Does nothing without a key vault. A timer calls it every minute.
   */
  check(): Promise<void>;
  status(): Promise<SigningStatus>;
  /** Returns the rows that `accept` would accept. Writes nothing. */
  inspect(): Promise<Finding[]>;
  /**
   * Accepts all rows as they are, apart from those in `remove`, which it removes. Writes the lists and the state in the key
   * vault anew. Only for a stopped app, and for someone who can write the service's key vault. Can be repeated after a crash.
   *
   * @param findings - The result of `inspect` that the person has seen. It is only recorded in the audit log.
   */
  accept(findings: readonly Finding[], options: { requestId: string; remove?: readonly RowLocation[] }): Promise<void>;
  /**
   * Lets an earlier version of the service write rows. This version signs the rows again when it next starts. Only for a stopped
   * app.
   */
  forget(): Promise<void>;
}

const sharedKeyWarning = (others: readonly string[]) =>
  `The key row-signing in the service's key vault also signs the rows of other storage accounts: ${others.join(", ")}. Someone who can write the tables of both can copy rows from one to the other. Give each deployment its own key vault. If a deployment is gone, remove its account from the tag "stores" of the key.`;

/** Maximum number of accepted rows that the audit entry names. */
const MAX_NAMED = 50;
const LISTED_RANGES = SIGNED_RANGES.filter(({ listed }) => listed);

/** @param deps.partitions - Undefined, as `states`, if the service has no key vault. */
export function createSignedRows(deps: {
  partitions: SignedPartitions | undefined;
  states: SigningStates | undefined;
  unreadableRows: Pick<UnreadableRows, "report" | "removeResolved">;
  audit: AuditRecorder;
  clock: Clock;
  log: Logger;
}): SignedRows {
  const { partitions, states, unreadableRows, audit, clock, log } = deps;
  let isRegistered = false;

  /**
   * Returns the state in which this version begins to sign the rows. Without a row of an earlier version there is no grace
   * period: no row without a signature is ever accepted.
   */
  async function start({ sequences }: SigningState, signedPartitions: SignedPartitions): Promise<SigningState> {
    const unsigned = await Promise.all(SIGNED_RANGES.map((range) => signedPartitions.hasUnsigned(range)));
    const now = clock.now().getTime();
    const at = new Date(now).toISOString();
    const grace = unsigned.includes(true) ? UNSIGNED_GRACE_MS : 0;
    const signed = { at, unsignedUntil: new Date(now + grace).toISOString(), complete: false };
    return { signed, sequences };
  }

  /** Signs the rows that have no signature. Returns the state afterwards. */
  async function signRows(state: Required<SigningState>, signedPartitions: SignedPartitions): Promise<SigningState> {
    // Decided before the rows are signed, so that the last pass starts after the grace period and misses no accepted row.
    const isOver = clock.now().getTime() >= Date.parse(state.signed.unsignedUntil);
    let changes = 0;
    for (const range of SIGNED_RANGES) changes += await signedPartitions.signUnsigned(range);
    if (changes > 0) log.info("Signed rows of an earlier version", { rows: changes });
    return { ...state, signed: { ...state.signed, complete: isOver } };
  }

  /** Compares the rows with their lists and sets aside those that differ. Returns the state with the lists' new sequences. */
  async function compareRows(state: SigningState, signedPartitions: SignedPartitions): Promise<SigningState> {
    const sequences: Record<string, readonly number[]> = { ...state.sequences };
    for (const range of LISTED_RANGES) {
      const compared = await signedPartitions.compare(range, state.sequences[range.table] ?? []);
      sequences[range.table] = compared.sequences;
      for (const finding of compared.findings) await setAside(finding, signedPartitions);
    }
    return { ...state, sequences };
  }

  /** Sets aside a row that differs from its list: replaces its signature with the reason, so that no read accepts the row. */
  async function setAside(finding: ComparedRow, signedPartitions: SignedPartitions): Promise<void> {
    const { table, partitionKey, rowKey, reason } = finding;
    // No instance can read a row with a wrong signature anyway.
    if (reason === "changed") return;
    const etag = await signedPartitions.setAside({ ...finding, reason });
    // The row was written or removed since the comparison.
    if (etag === undefined) return;
    await unreadableRows.report([new StorageCorrupt(table, { partitionKey, rowKey, etag }, reason)]);
  }

  /** Returns the parts of a service with a key vault. @throws {Error} without one. */
  function requireVault() {
    if (!partitions || !states)
      throw new Error("Rows are signed only with the service's own key vault: set SERVICE_KEY_VAULT_URL.");
    return { partitions, states };
  }

  return {
    async check() {
      if (!partitions || !states) return;
      const before = await states.read();
      let state = before;
      if (!state.signed) {
        state = await start(state, partitions);
        await states.write(state);
      }
      const { signed, sequences } = state;
      if (signed && !signed.complete) state = await signRows({ signed, sequences }, partitions);
      if (state.signed?.complete) state = await compareRows(state, partitions);
      if (JSON.stringify(state) !== JSON.stringify(before)) await states.write(state);
      if (!isRegistered) isRegistered = (await states.registerStore()).registered;
    },

    async status() {
      if (!states) return { status: "off" };
      try {
        const { signed } = await states.read();
        if (!signed?.complete) return { status: "starting" };
        const { others } = await states.registerStore();
        return { status: "signed", since: signed.at, ...(others.length > 0 && { detail: sharedKeyWarning(others) }) };
      } catch (error) {
        return { status: "unknown", detail: error instanceof Error ? error.message : "failed" };
      }
    },

    async inspect() {
      const { partitions: signedPartitions, states: signingStates } = requireVault();
      const { sequences } = await signingStates.read();
      const findings: Finding[] = [];
      for (const range of SIGNED_RANGES)
        findings.push(...(await signedPartitions.inspect(range, sequences[range.table] ?? [])));
      return findings;
    },

    async accept(findings, { requestId, remove = [] }) {
      const { partitions: signedPartitions, states: signingStates } = requireVault();
      const { sequences, signed } = await signingStates.read();
      const next: Record<string, readonly number[]> = {};
      for (const range of SIGNED_RANGES) {
        const keys = remove.filter(
          ({ table, partitionKey }) => table === range.table && partitionKey === range.partitionKey,
        );
        const removed = new Set(keys.map(({ rowKey }) => rowKey));
        const written = await signedPartitions.acceptAll(range, { sequences: sequences[range.table] ?? [], removed });
        if (range.listed) next[range.table] = written;
      }
      const now = clock.now().toISOString();
      await signingStates.write({
        signed: { at: signed?.at ?? now, unsignedUntil: now, complete: true },
        sequences: next,
      });
      // `content` shows a person what the row is. The audit entry has only its keys and the reason.
      await audit.append({
        type: "storage.rowsAccepted",
        caller: { actor: "system", requestId },
        outcome: "success",
        details: {
          total: findings.length,
          rows: findings.slice(0, MAX_NAMED).map(({ content: _, ...row }) => row),
          removed: remove.slice(0, MAX_NAMED),
        },
      });
      await unreadableRows.removeResolved();
    },

    async forget() {
      if (!states) return;
      const { sequences } = await states.read();
      await states.write({ sequences });
    },
  };
}
