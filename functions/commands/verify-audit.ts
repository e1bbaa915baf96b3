/**
 * Verifies JSON exports of the audit log without the service: node functions/commands/verify-audit.ts
 * --public-key kid:base64 [--public-key …] part1.json [part2.json.gz …]
 *
 * The public keys are those that GET /audit/verify showed earlier, kept apart from the service. Give all parts of an export
 * together. Ends with 0 when the log is intact, 1 when it is not, 2 when the call was wrong, 3 when nothing in it is sealed.
 */
import type { KeyObject } from "node:crypto";
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { gunzipSync } from "node:zlib";
import { publicKeyFrom } from "../../shared/audit/chain/signing.ts";
import { type ExportVerification, verifyExport } from "../../shared/audit/verify/verify-export.ts";

const USAGE = "Usage: verify-audit --public-key kid:base64 [--public-key kid:base64 …] file.json [file.json.gz …]";
const SHOWN_FINDINGS = 100;

/** The call was wrong; the message says how. */
class UsageError extends Error {}

function readArguments(): { keys: Map<string, KeyObject>; files: string[] } {
  const { values, positionals } = parseArgs({
    options: { "public-key": { type: "string", multiple: true } },
    allowPositionals: true,
  });
  const keys = new Map(
    (values["public-key"] ?? []).map((pair) => {
      const at = pair.indexOf(":");
      if (at < 1) throw new UsageError(`--public-key ${pair}: write it as kid:base64.`);
      return [pair.slice(0, at), publicKeyFrom(pair.slice(at + 1))];
    }),
  );
  if (keys.size === 0) throw new UsageError("Give the public key you trust: it is never taken from the export.");
  if (positionals.length === 0) throw new UsageError("Give the files of the export.");
  return { keys, files: positionals };
}

async function readExport(file: string): Promise<unknown> {
  const bytes = await readFile(file);
  const isGzip = bytes[0] === 0x1f && bytes[1] === 0x8b;
  try {
    return JSON.parse((isGzip ? gunzipSync(bytes) : bytes).toString("utf8"));
  } catch {
    throw new UsageError(`${file} is not JSON.`);
  }
}

const VERDICTS = {
  intact: "INTACT: nothing was changed, removed or inserted.",
  notIntact: "NOT INTACT: the audit log was tampered with.",
  nothingSealed: "NOTHING SEALED: no digest of a trusted key is in it, so nothing can be said of its entries.",
};
const EXIT_CODES = { intact: 0, notIntact: 1, nothingSealed: 3 };

function report(result: ExportVerification): void {
  const { verdict, findings, entries, digests, sealedFrom, sealedUpTo, unsealed, purges, notes } = result;
  console.log(VERDICTS[verdict]);
  const range = sealedFrom === null ? "" : `, of the intervals ${sealedFrom} to ${sealedUpTo}`;
  console.log(`Checked ${entries} entries against ${digests} digests${range}.`);
  if (unsealed > 0) console.log(`${unsealed} entries were not sealed yet when this was exported.`);
  for (const { from, to, entries, actor, purgedAt } of purges) {
    console.log(`Purged: ${entries} entries from ${from} to ${to}, by ${actor} at ${purgedAt}.`);
  }
  for (const note of notes) console.log(`Note: ${note}`);
  for (const { kind, interval, digestNumber, entryId, detail } of findings.slice(0, SHOWN_FINDINGS)) {
    const place = [
      interval && `interval ${interval}`,
      digestNumber && `digest ${digestNumber}`,
      entryId && `entry ${entryId}`,
    ];
    console.log(`${kind} (${place.filter(Boolean).join(", ") || "the export"}): ${detail}`);
  }
  if (findings.length > SHOWN_FINDINGS) console.log(`… and ${findings.length - SHOWN_FINDINGS} more.`);
}

try {
  const { keys, files } = readArguments();
  const parts: unknown[] = [];
  for (const file of files) parts.push(await readExport(file));
  const result = await verifyExport(parts, keys);
  report(result);
  process.exitCode = EXIT_CODES[result.verdict];
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  console.error(USAGE);
  process.exitCode = 2;
}
