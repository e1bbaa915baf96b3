import { promisify } from "node:util";
import { gzip } from "node:zlib";

/** Compresses in a thread of Node's pool, so that other requests continue meanwhile. */
export const gzipped = promisify(gzip);

/** Minimum size in bytes of a response that is compressed. Smaller responses fit into one packet anyway. */
const MIN_BYTES = 1024;

/** zlib's fastest level. A list of assets shrinks to 11 %; with the default level to 9 %, in twice the time. */
const LEVEL = 1;

const COMPRESSIBLE = /^(text\/|application\/([\w.]+\+)?json\b)/;

/** Content codings, by their HTTP names. */
export type Coding = "br" | "gzip";
/** Alternative names of codings (RFC 9110, 8.4.1.3). */
const ALIAS: Partial<Record<Coding, string>> = { gzip: "x-gzip" };

/**
 * Returns whether the caller accepts a coding (RFC 9110, 12.5.3). `q=0` rejects a coding, and `*` stands for codings that are
 * not named.
 */
export function accepts(headers: Headers, coding: Coding): boolean {
  const weights = new Map<string, number>();
  for (const item of (headers.get("accept-encoding") ?? "").toLowerCase().split(",")) {
    const [name = "", ...parameters] = item.split(";").map((part) => part.trim());
    const weight = parameters.find((parameter) => parameter.startsWith("q="));
    weights.set(name, weight === undefined ? 1 : Number(weight.slice(2)));
  }
  return (weights.get(coding) ?? weights.get(ALIAS[coding] ?? "") ?? weights.get("*") ?? 0) > 0;
}
export const acceptsGzip = (headers: Headers): boolean => accepts(headers, "gzip");

/** Returns the headers that name the coding of the body, if any, and tell caches that the answer depends on Accept-Encoding. */
export const contentCodingHeaders = (coding: Coding | undefined) => ({
  Vary: "Accept-Encoding",
  ...(coding ? { "Content-Encoding": coding } : {}),
});

/** Returns whether the type and size of a body make its compression worthwhile. */
export const isCompressible = ({ type, data }: { type: string; data: string | Uint8Array }): boolean =>
  Buffer.byteLength(data) >= MIN_BYTES && COMPRESSIBLE.test(type);

/** Compresses a body if the caller accepts gzip and the type and size make it worthwhile. */
export async function compressed(
  body: { type: string; data: string | Uint8Array },
  caller: Headers,
): Promise<{ data: string | Uint8Array; headers: Record<string, string> }> {
  const { data } = body;
  if (!isCompressible(body)) return { data, headers: {} };
  if (!acceptsGzip(caller)) return { data, headers: contentCodingHeaders(undefined) };
  return { data: await gzipped(data, { level: LEVEL }), headers: contentCodingHeaders("gzip") };
}
