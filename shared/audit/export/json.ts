import type { ChainState, ReadingDependencies } from "../chain/chain-state.ts";
import type { Finding } from "../chain/findings.ts";
import { fingerprintOf, manifestHash, readManifests, type Sealed } from "../chain/manifest.ts";
import { signStatement } from "../chain/signing.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import type { AuditQuery } from "../list.ts";
import { readRow, readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { byInterval } from "../stored-entries.ts";
import { checkUnsealed, unsealedRange } from "../verify/check-unsealed.ts";
import { createFindingList } from "../verify/finding-list.ts";
import { findUnexpectedRows } from "../verify/unexpected-rows.ts";
import { type Position, positionText } from "./entry-pages.ts";
import type { PartWriter } from "./part.ts";
import { EXPORT_FORMAT, type ExportStatement } from "./statement.ts";

/** Maximum number of invalid rows that one part reports. */
const MAX_INVALID_ROWS = 1000;
/** Approximate number of characters per piece of output. */
const PIECE_CHARACTERS = 65_536;

/**
 * Writes one part of a JSON export of the audit log. The part contains what the offline verification needs. These are the
 * digests of its ten-minute intervals (signed hashes) with the fingerprints (ids and hashes) of their entries, the previous
 * digest, purge records, older keys, and a signed statement about this part.
 */
export function createJsonPart(
  deps: ReadingDependencies,
  part: {
    query: AuditQuery;
    start: number;
    end: number;
    state: ChainState;
    after: Position | undefined;
    write(text: string): Promise<void>;
  },
): PartWriter {
  const { tables, clock, trust } = deps;
  const { query, state, write } = part;
  const [start, end] = [new Date(part.start).toISOString(), new Date(part.end).toISOString()];
  const fingerprints = manifestHash();
  const invalidRows: Finding[] = [];
  let entries = 0;

  return {
    async begin() {
      await write(`{"format":"${EXPORT_FORMAT}","start":"${start}","end":"${end}","entries":[`);
    },

    async write(rows) {
      const texts: string[] = [];
      // Only rows up to the newest digest are reported here: `checkUnsealed` reports those after it.
      for (const { row, entry } of rows) {
        if (entry) {
          fingerprints.add(fingerprintOf(row));
          texts.push(row.text!);
        } else if (state.end && row.interval <= state.end.interval && invalidRows.length < MAX_INVALID_ROWS) {
          const detail = "The row is not an entry that this service wrote.";
          invalidRows.push({ kind: "entryInserted", interval: intervalName(row.interval), entryId: row.id, detail });
        }
      }
      if (texts.length === 0) return;
      await write(`${entries === 0 ? "\n" : ",\n"}${texts.join(",\n")}`);
      entries += texts.length;
    },

    async end(upTo, nextCursor) {
      const from = part.after ? part.after.interval : intervalOf(part.start);
      const lastRequested = upTo ? upTo.interval : intervalOf(part.end - 1);
      // If nothing is sealed, the range of digests is empty.
      const lastInterval = Math.min(lastRequested, state.end?.interval ?? from - INTERVAL_MS);
      await write('\n],"digests":[');
      await writeDigests(from, lastInterval);
      const predecessor = await readRow(tables, DigestRow, DIGESTS_PARTITION, intervalName(from - INTERVAL_MS));
      const closing = {
        predecessor: predecessor?.value?.digest ?? null,
        purges: state.purges.records.map(({ statement }) => statement),
        keys: state.vouchers.statements,
        statement: await statement(upTo),
        nextCursor,
      };
      // `begin` opened the object, so the opening brace of these members is left out.
      await write(`\n],${JSON.stringify(closing).slice(1)}\n`);
    },
  };

  /** Writes the digests of `from <= interval <= last` with their fingerprints, in pieces, to limit memory. */
  async function writeDigests(from: Interval, last: Interval): Promise<void> {
    const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: `${intervalName(last)}~` };
    const sealed = byInterval(readManifests(tables, { from, to: last + INTERVAL_MS }));
    let separator = "\n";
    for await (const page of readRows(tables, DigestRow, range)) {
      for (const { rowKey, value } of page) {
        const [name, digest] = [JSON.stringify(rowKey), JSON.stringify(value?.digest ?? "")];
        await write(`${separator}{"interval":${name},"digest":${digest},"fingerprints":[`);
        separator = ",\n";
        let piece = "";
        let comma = "";
        const interval = isIntervalName(rowKey) ? intervalFrom(rowKey) : undefined;
        for await (const { fingerprint } of interval === undefined ? noFingerprints() : sealed.itemsOf(interval)) {
          piece += `${comma}${JSON.stringify(fingerprint)}`;
          comma = ",";
          if (piece.length < PIECE_CHARACTERS) continue;
          await write(piece);
          piece = "";
        }
        await write(`${piece}]}`);
      }
    }
  }

  /** Returns the signed statement about the part. Null if no key is configured. */
  async function statement(upTo: Position | undefined): Promise<string | null> {
    if (!trust.signer) return null;
    const { end: newest, keptFrom, beginning, anchorState } = state;
    // Only the first part states what was found outside of its own entries: these findings concern the whole log.
    const unexpectedRows = part.after ? [] : await findUnexpectedRows(deps, state);
    const unsealed = part.after ? undefined : await unsealedRange(deps, state);
    const inUnsealed = createFindingList();
    if (unsealed) await checkUnsealed(deps, state, unsealed, inUnsealed, { index: false });
    const findings = [...unexpectedRows, ...invalidRows, ...inUnsealed.listed];
    const payload: ExportStatement = {
      exportedAt: clock.now().toISOString(),
      start,
      end,
      ...(query.actor !== undefined && { actor: query.actor }),
      ...(query.eventType !== undefined && { eventType: query.eventType }),
      after: part.after ? positionText(part.after) : null,
      upTo: upTo ? positionText(upTo) : null,
      entries,
      fingerprints: fingerprints.digest(),
      sealedFrom: keptFrom === undefined ? null : intervalName(keptFrom),
      beginning: beginning ?? null,
      newest: newest ? { number: newest.number, interval: intervalName(newest.interval), hash: newest.hash } : null,
      anchor: anchorState === "unreadable" ? null : (anchorState ?? null),
      ...(findings.length > 0 && { findings }),
    };
    return signStatement("audit-export", payload, trust.signer);
  }
}

async function* noFingerprints(): AsyncGenerator<Sealed> {}
