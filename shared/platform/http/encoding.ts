import { promisify } from "node:util";
import { gzip } from "node:zlib";

/** In a thread of its own. */
export const gzipped = promisify(gzip);

/** Bytes under which an answer goes as it is: it fits into one packet either way. */
const LEAST_BYTES = 1024;

/** zlib's fastest level: it leaves 11 % of a list of assets, the default 9 % in twice the time. */
const LEVEL = 1;

const COMPRESSIBLE = /^(text\/|application\/(problem\+)?json\b)/;

/** Content codings by their names in HTTP. */
export type Coding = "br" | "gzip";
/** The same coding by another name: RFC 9110, 8.4.1.3. */
const ALIAS: Partial<Record<Coding, string>> = { gzip: "x-gzip" };

/** Whether the caller takes a coding: RFC 9110, 12.5.3. `q=0` refuses it, `*` stands for what is not named. */
export function takes(headers: Headers, coding: Coding): boolean {
  const weights = new Map<string, number>();
  for (const item of (headers.get("accept-encoding") ?? "").toLowerCase().split(",")) {
    const [name = "", ...parameters] = item.split(";").map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith("q="));
    weights.set(name, weight === undefined ? 1 : Number(weight.slice(2)));
  }
  return (weights.get(coding) ?? weights.get(ALIAS[coding] ?? "") ?? weights.get("*") ?? 0) > 0;
}
export const takesGzip = (headers: Headers): boolean => takes(headers, "gzip");

/** What says in which coding a body goes, if in any, and tells caches that there is more than one answer. */
export const codedHeaders = (coding: Coding | undefined) => ({
  Vary: "Accept-Encoding",
  ...(coding ? { "Content-Encoding": coding } : {}),
});

/** A body compressed, when its type and size make that worth while and the caller takes gzip. */
export async function compressed(
  body: { type: string; data: string | Uint8Array },
  caller: Headers,
): Promise<{ data: string | Uint8Array; headers: Record<string, string> }> {
  const { type, data } = body;
  if (Buffer.byteLength(data) < LEAST_BYTES || !COMPRESSIBLE.test(type)) return { data, headers: {} };
  if (!takesGzip(caller)) return { data, headers: codedHeaders(undefined) };
  return { data: await gzipped(data, { level: LEVEL }), headers: codedHeaders("gzip") };
}
