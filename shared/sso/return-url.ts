/** Maximum length of a path to return to after a sign-in. */
export const MAX_RETURN_URL_LENGTH = 2048;

/** Encodes a path for the header Location, which allows only ASCII. */
export const asLocation = (path: string): string => path.replace(/[^\x21-\x7e]+/g, encodeURIComponent);

/**
 * Returns true if a redirect to this path stays on this service however the browser parses it. Browsers read `\` as `/`, ignore
 * tabs and line ends, and read two slashes as another host. https://url.spec.whatwg.org/#concept-basic-url-parser
 */
export function isOwnPath(path: string, origin: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression rejects control characters
  if (path.length > MAX_RETURN_URL_LENGTH || !/^\/(?!\/)[^\\\u0000-\u001f\u007f]*$/.test(path)) return false;
  return URL.canParse(path, origin) && new URL(path, origin).origin === origin;
}
