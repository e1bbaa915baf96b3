/**
 * Returns the path of a request target as the platform's web server (Kestrel) does. It decodes escapes except `%2F` and leaves
 * invalid UTF-8 unchanged. Then it resolves dot segments (`.` and `..`), also those that were escaped.
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

/**
 * Decodes percent escapes. An invalid escape, or one that is not UTF-8, is unchanged.
 * @param keepSlash Whether `%2F` is left unchanged.
 */
export function decodeEscapes(text: string, { keepSlash }: { keepSlash: boolean }): string {
  return text.replaceAll(/(?:%[\da-f]{2})+/gi, (escapes) => {
    let result = "";
    for (let position = 0; position < escapes.length; ) {
      const length = sequenceLength(escapes, position);
      const piece = escapes.slice(position, position + 3 * Math.max(1, length));
      const decoded = length === 0 ? undefined : decodeUtf8(piece);
      if (decoded === undefined) {
        result += escapes.slice(position, position + 3);
        position += 3;
      } else {
        result += keepSlash && decoded === "/" ? piece : decoded;
        position += piece.length;
      }
    }
    return result;
  });
}

/**
 * Returns the number of bytes of the UTF-8 character that starts here, from its first byte. 0 if no character can start with
 * it.
 */
function sequenceLength(escapes: string, position: number): number {
  const byte = Number.parseInt(escapes.slice(position + 1, position + 3), 16);
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
  const result: string[] = [];
  const segments = path.split("/").slice(1);
  for (const [index, segment] of segments.entries()) {
    if (segment !== "." && segment !== "..") {
      result.push(segment);
      continue;
    }
    if (segment === "..") result.pop();
    if (index === segments.length - 1) result.push("");
  }
  return `/${result.join("/")}`;
}

/**
 * Encodes a decoded path for a URL. Escapes in the path, such as `%2F`, are unchanged. The split puts escapes at the odd
 * positions.
 */
export function encodePath(path: string): string {
  return path
    .split(/(%[\da-f]{2})/i)
    .map((piece, index) => (index % 2 === 1 ? piece : encodeURI(piece).replaceAll(/[?#]/g, encodeURIComponent)))
    .join("");
}
