/**
 * A command for auditors that verifies JSON exports of the audit log, or the received events of an audit stream, without access to
 * the service. See HELP. The service seals
 * entries every ten minutes: it signs a digest of the interval's entries.
 */
import type { KeyObject } from "node:crypto";
import { readFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";
import { publicKeyFrom } from "../../shared/audit/chain/signing.ts";
import { type ExportVerification, verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { verifyStream } from "../../shared/audit/verify/verify-stream.ts";

const HELP = `npm run verify-audit -- --public-key KID:BASE64 [--public-key KID:BASE64]… [--stream] FILE…

Verifies JSON exports of the audit log without access to the service. Files can be compressed with gzip.
List all parts of an export.

  --stream                  The files contain received events of an audit stream: a JSON array, or an event or an array
                            per line. Each event has id, type and data.

  --public-key KID:BASE64   a key from an earlier response of GET /audit/verify that you saved outside of the service.
                            Keys in the export are not trusted.

Exit codes: 0 intact, 1 not intact, 2 invalid arguments, 3 the export contains no sealed entries.`;
/** Maximum number of printed findings. */
const MAX_PRINTED_FINDINGS = 100;

function readArguments(): { keys: Map<string, KeyObject>; files: string[]; stream: boolean } {
  const { values, positionals } = commandLine(HELP, {
    options: { "public-key": { type: "string", multiple: true }, stream: { type: "boolean", default: false } },
    allowPositionals: true,
  });
  const keys = new Map(
    (values["public-key"] ?? []).map((pair) => {
      const colon = pair.indexOf(":");
      if (colon < 1) exitWithUsageError("A public key must have the format KID:BASE64");
      try {
        return [pair.slice(0, colon), publicKeyFrom(pair.slice(colon + 1))];
      } catch (error) {
        return exitWithUsageError((error as Error).message);
      }
    }),
  );
  if (keys.size === 0) exitWithUsageError("--public-key is missing. Keys in the export are not trusted");
  if (positionals.length === 0) exitWithUsageError("The files of the export are missing");
  return { keys, files: positionals, stream: values.stream };
}

async function readText(file: string): Promise<string> {
  const bytes = await readFile(file).catch((error: Error) => exitWithUsageError(error.message));
  // The first two bytes of every gzip file.
  const isGzip = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return (isGzip ? gunzipSync(bytes) : bytes).toString("utf8");
}

/** Undefined if the text is not JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function readExport(file: string): Promise<unknown> {
  return parsed(await readText(file)) ?? exitWithUsageError(`${file} is not JSON`);
}

/** Reads events from a JSON array, or from lines that are events or arrays of events. */
async function readEvents(file: string): Promise<unknown[]> {
  const text = await readText(file);
  const whole = parsed(text);
  if (whole !== undefined) return [whole].flat();
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return lines.flatMap((line) => parsed(line) ?? exitWithUsageError(`${file} has a line that is not JSON`));
}

const VERDICTS = {
  intact: "INTACT: no entry was changed, removed or inserted.",
  notIntact: "NOT INTACT: entries were changed, removed or inserted.",
  nothingSealed: "NOTHING SEALED: the export contains no digest of a trusted key, so its entries can't be verified.",
};
const EXIT_CODES = { intact: 0, notIntact: 1, nothingSealed: 3 };

function report(result: ExportVerification): void {
  const { verdict, findings, entries, digests, sealedFrom, sealedUpTo, unsealed, purges, notes } = result;
  console.log(VERDICTS[verdict]);
  const range = sealedFrom === null ? "" : `, intervals ${sealedFrom} to ${sealedUpTo}`;
  console.log(`Checked ${entries} entries against ${digests} digests${range}.`);
  if (unsealed > 0) console.log(`${unsealed} entries are not covered by a digest in the files.`);
  for (const { from, to, entries, actor, purgedAt } of purges) {
    console.log(`Purged: ${entries} entries from ${from} to ${to}, by ${actor} at ${purgedAt}.`);
  }
  for (const note of notes) console.log(`Note: ${note}`);
  for (const { kind, interval, digestNumber, entryId, detail } of findings.slice(0, MAX_PRINTED_FINDINGS)) {
    const location = [
      interval && `interval ${interval}`,
      digestNumber && `digest ${digestNumber}`,
      entryId && `entry ${entryId}`,
    ];
    console.log(`${kind} (${location.filter(Boolean).join(", ") || "the export"}): ${detail}`);
  }
  if (findings.length > MAX_PRINTED_FINDINGS) console.log(`… and ${findings.length - MAX_PRINTED_FINDINGS} more.`);
}

const { keys, files, stream } = readArguments();
const parts: unknown[] = [];
for (const file of files) parts.push(...(stream ? await readEvents(file) : [await readExport(file)]));
// Throws if the file is not an export, or not the events, of this service.
const verify = async () => (stream ? verifyStream(parts, keys) : await verifyExport(parts, keys));
const result = await verify().catch((error: Error) => exitWithUsageError(error.message));
report(result);
process.exitCode = EXIT_CODES[result.verdict];
