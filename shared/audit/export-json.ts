import { chainEnd, type DigestName } from "./chain.ts";
import type { ExportDependencies, PartWriter } from "./export-part.ts";
import { type Position, positionText } from "./export-walk.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import type { AuditQuery } from "./list.ts";
import { manifestHash, readManifests } from "./manifest.ts";
import type { Purges } from "./purge-record.ts";
import { DIGESTS_PARTITION, DigestRow } from "./rows.ts";
import { signStatement } from "./signing.ts";
import { EXPORT_FORMAT, type ExportStatement } from "./statement.ts";
import { byInterval, fingerprintOf } from "./stored.ts";

/** Text is handed on in pieces of about this many characters. */
const PIECE_CHARACTERS = 65_536;

/**
 * A part of a JSON export, with everything that verifies it elsewhere: the digests of the intervals it touches with the
 * fingerprints they sealed, the digest before, purges, older keys, and a signed statement about this very part.
 */
export function createJsonPart(
  deps: ExportDependencies,
  part: {
    query: AuditQuery;
    start: number;
    end: number;
    sealedFrom: Interval | undefined;
    purges: Purges;
    after: Position | undefined;
    write(text: string): Promise<void>;
  },
): PartWriter {
  const { tables, clock, trust, anchor } = deps;
  const { query, purges, write } = part;
  const [start, end] = [new Date(part.start).toISOString(), new Date(part.end).toISOString()];
  const fingerprints = manifestHash();
  let entries = 0;

  return {
    async begin() {
      await write(`{"format":"${EXPORT_FORMAT}","start":"${start}","end":"${end}","entries":[`);
    },

    async write(rows) {
      const texts = rows.map(({ row }) => {
        fingerprints.add(fingerprintOf(row));
        return row.text!;
      });
      if (texts.length === 0) return;
      await write(`${entries === 0 ? "\n" : ",\n"}${texts.join(",\n")}`);
      entries += texts.length;
    },

    async end(upTo, nextCursor) {
      const from = part.after ? part.after.interval : intervalOf(part.start);
      const last = upTo ? upTo.interval : intervalOf(part.end - 1);
      await write('\n],"digests":[');
      await writeDigests(from, last);
      const predecessor = await tables.get(DigestRow, DIGESTS_PARTITION, intervalName(from - INTERVAL_MS));
      const closing = {
        predecessor: predecessor?.digest ?? null,
        purges: purges.records.map(({ statement }) => statement),
        keys: await trust.vouchers(),
        statement: await statement(upTo),
        nextCursor,
      };
      await write(`\n],${JSON.stringify(closing).slice(1)}\n`);
    },
  };

  async function writeDigests(from: Interval, last: Interval): Promise<void> {
    const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: `${intervalName(last)}~` };
    const sealed = byInterval(readManifests(tables, { from, to: last + INTERVAL_MS }));
    let separator = "\n";
    for await (const page of tables.pages(DigestRow, range)) {
      for (const { rowKey, digest } of page) {
        await write(`${separator}{"interval":"${rowKey}","digest":${JSON.stringify(digest)},"fingerprints":[`);
        separator = ",\n";
        let piece = "";
        let comma = "";
        for await (const { fingerprint } of sealed.of(intervalFrom(rowKey))) {
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

  async function statement(upTo: Position | undefined): Promise<string | null> {
    if (!trust.signer) return null;
    const newest = await chainEnd(tables, await trust.keys(), clock);
    const payload: ExportStatement = {
      exportedAt: clock.now().toISOString(),
      start,
      end,
      ...(query.actor === undefined ? {} : { actor: query.actor }),
      ...(query.eventType === undefined ? {} : { eventType: query.eventType }),
      after: part.after ? positionText(part.after) : null,
      upTo: upTo ? positionText(upTo) : null,
      entries,
      fingerprints: fingerprints.digest(),
      sealedFrom: part.sealedFrom === undefined ? null : intervalName(part.sealedFrom),
      newest: newest ? nameOf(newest) : null,
      anchor: (await anchor?.read()) ?? null,
    };
    return signStatement("audit-export", payload, trust.signer);
  }
}

const nameOf = ({ number, interval, hash }: { number: number; interval: Interval; hash: string }): DigestName => ({
  number,
  interval: intervalName(interval),
  hash,
});
