/**
 * Returns the path of a request target as the platform's web server (Kestrel) does: escapes are decoded except `%2F`, invalid
 * UTF-8 is unchanged, and dot segments are resolved afterwards, including escaped dots.
 * @returns undefined if the server returns 400 (a NUL, or a target without a path)
 */
export function requestPath(target: string): string | undefined {
  const raw = target.startsWith("/")
    ? target
    : URL.canParse(target)
      ? target.replace(/^[a-z]+:\/\/[^/?]*/i, "")
      : undefined;
  if (raw === undefined) return undefined;
  const path = decodeEscapes(raw.split("?", 1)[0]!, { keepSlash: true });
  return path.includes("\0") ? undefined : removeDotSegments(path === "" ? "/" : path);
}

/** Decodes percent escapes. An invalid escape, or one that is not UTF-8, is unchanged. */
export function decodeEscapes(text: string, { keepSlash }: { keepSlash: boolean }): string {
  return text.replaceAll(/(?:%[\da-f]{2})+/gi, (escapes) => {
    let out = "";
    for (let at = 0; at < escapes.length; ) {
      const length = sequenceLength(escapes, at);
      const piece = escapes.slice(at, at + 3 * Math.max(1, length));
      const decoded = length === 0 ? undefined : decodeUtf8(piece);
      if (decoded === undefined) {
        out += escapes.slice(at, at + 3);
        at += 3;
      } else {
        out += keepSlash && decoded === "/" ? piece : decoded;
        at += piece.length;
      }
    }
    return out;
  });
}

function sequenceLength(escapes: string, at: number): number {
  const byte = Number.parseInt(escapes.slice(at + 1, at + 3), 16);
  if (byte < 0x80) return 1;
  if (byte >= 0xc2 && byte <= 0xdf) return 2;
  if (byte >= 0xe0 && byte <= 0xef) return 3;
  return byte >= 0xf0 && byte <= 0xf4 ? 4 : 0;
}

function decodeUtf8(escapes: string): string | undefined {
  try {
    return decodeURIComponent(escapes);
  } catch (error) {
    if (error instanceof URIError) return undefined;
    throw error;
  }
}

function removeDotSegments(path: string): string {
  const kept: string[] = [];
  const segments = path.split("/").slice(1);
  for (const [index, segment] of segments.entries()) {
    if (segment !== "." && segment !== "..") {
      kept.push(segment);
      continue;
    }
    if (segment === "..") kept.pop();
    if (index === segments.length - 1) kept.push("");
  }
  return `/${kept.join("/")}`;
}

/** Encodes a decoded path as a URL path. Escapes that it still contains are unchanged. */
export function encodePath(path: string): string {
  return path
    .split(/(%[\da-f]{2})/i)
    .map((piece, index) => (index % 2 === 1 ? piece : encodeURI(piece).replaceAll(/[?#]/g, encodeURIComponent)))
    .join("");
}
